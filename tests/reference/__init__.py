"""Slow, literal reference implementations that the tests compare privfed with; they import nothing of it."""
