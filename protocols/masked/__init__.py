"""Masked sums: the dropout-proof secure sum that the server opens."""
