"""The former place of `privfed.nodes.flower`."""

from privfed.core.names import moved

__getattr__ = moved(__name__, "privfed.nodes.flower")
