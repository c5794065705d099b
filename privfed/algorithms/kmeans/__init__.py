"""Federated k-means in rounds: weighted (WF, DWF, EWF) and mini-batch k-means."""
