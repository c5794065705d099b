"""A server that chooses its questions."""
