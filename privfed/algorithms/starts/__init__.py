"""Starting centroids, each found by questions to the clients."""
