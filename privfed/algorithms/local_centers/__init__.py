"""Algorithms over the clients' own centroids: k-FED and FKM."""
