"""The one place of the version; read without installing or searching for anything."""

__version__ = "0.5.0"

EQUAL = {"wire": "1", "algorithms": "1"}
"""What all parties of an agreement have in common, by number: versions with the same numbers work together.

Raise `wire` with the form of any message, question or agreement. Raise `algorithms` where the same agreement
is followed otherwise: other public geometry from a seed, another order of questions, another rule of noise.
"""
