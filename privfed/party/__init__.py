"""A client as a party: what it checks and answers, and its stored state."""
