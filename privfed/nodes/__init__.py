"""Parties on machines of their own: identity, journal and stored state, and the engines that reach them."""
