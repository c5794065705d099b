"""Experiments: studies of the trade-off between utility, privacy, leakage and cost, and their reports."""
