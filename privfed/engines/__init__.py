"""Engines, which carry requests to clients and replies back."""

from privfed.engines.in_process import Fault, InProcessEngine
from privfed.party.state import FileStore, MemoryStore

__all__ = ["Fault", "FileStore", "InProcessEngine", "MemoryStore"]
