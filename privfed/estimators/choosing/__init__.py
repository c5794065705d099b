"""The choice of the number of clusters: indices, rules and the search."""
