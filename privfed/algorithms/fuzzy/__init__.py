"""Federated fuzzy c-means."""
