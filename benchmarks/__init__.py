"""Measurements; what they found stands in docs/measurements."""
