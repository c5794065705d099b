"""Rows from noised sums: sets of rows drawn from their posterior."""
