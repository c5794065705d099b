"""Attribute inference: an unknown value of a row of which the others are known."""
