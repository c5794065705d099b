"""Membership inference: whether a row, or a client, took part."""
