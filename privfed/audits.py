"""The former place of `privfed.attacks.audits`."""

from privfed.core.names import moved

__getattr__ = moved(__name__, "privfed.attacks.audits")
