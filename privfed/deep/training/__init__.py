"""A client's own part: training on its rows, remembering its cluster, and answering with an update."""
