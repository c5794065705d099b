"""How values become bytes and files: typed, versioned, and readable by their owner only."""
