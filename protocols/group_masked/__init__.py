"""Sums under pairwise masks and one group mask, opened by the clients."""
