"""Federated clustering algorithms: conversations of questions and sums."""
