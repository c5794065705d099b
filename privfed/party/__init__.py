"""A client as a party: its defences beyond the agreed terms, and its stored state."""
