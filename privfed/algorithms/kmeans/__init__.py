"""Federated k-means in rounds: weighted (WF, DWF, EWF) and in mini-batches."""
