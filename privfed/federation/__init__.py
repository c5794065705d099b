"""How a federation is opened: from parameters to an agreement, to parties behind a secure sum."""
