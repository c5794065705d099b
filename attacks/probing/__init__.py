"""Active attacks by a server that chooses its questions."""
