"""The one place of the version; read without installing or searching for anything."""

__version__ = "0.5.0"
