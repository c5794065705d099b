"""A client as a party: what it insists on beyond the agreement, and what it remembers."""
