"""Rows from fuzzy statistics, by solving the equations that they make."""
