"""Starting centroids, each found through the door."""
