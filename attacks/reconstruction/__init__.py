"""Recovers rows, counts and distributions from sums: differencing, hidden counts, tomography."""
