"""Algorithms that combine the clients' own centroids: k-FED and FKM."""
