"""Rows of a domain that can be listed: how often each possible row occurs."""
