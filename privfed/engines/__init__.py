"""Engines, which carry requests to clients and replies back."""

from privfed.engines.faults import Fault
from privfed.engines.in_process import InProcessEngine
from privfed.party.state import FileStore, MemoryStore

__all__ = ["Fault", "FileStore", "InProcessEngine", "MemoryStore"]
