"""Federated clustering algorithms, each a generator that asks questions and receives totals."""
