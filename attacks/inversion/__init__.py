"""Recovers rows from fuzzy statistics, by solving the equations that these impose on the rows."""
