"""Numerics: distances, memberships and local fits, on whole arrays; they know no question and no client."""
