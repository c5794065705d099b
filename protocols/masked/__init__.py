"""Masked sums: secure sums that the server opens and that survive dropouts."""
