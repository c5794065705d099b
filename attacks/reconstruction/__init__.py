"""Exact rows and counts from sums: differencing, hidden counts, tomography."""
