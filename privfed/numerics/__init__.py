"""Numerics on plain arrays, independent of questions and clients: distances, memberships, local fits."""
