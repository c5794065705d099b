"""Recovers rows from noised sums, by drawing sets of rows from their posterior."""
