"""k-means and related algorithms under differential privacy."""
