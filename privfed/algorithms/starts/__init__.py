"""Initialisations: starting centroids, found by questions to the clients."""
