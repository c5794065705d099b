"""A hostile server for masked sums: a model of what opens, real clients, and what their answers open."""
