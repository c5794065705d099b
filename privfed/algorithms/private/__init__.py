"""k-means and its relatives under differential privacy."""
