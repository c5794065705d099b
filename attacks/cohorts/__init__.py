"""Attacks that learn about single clients from changing cohorts or from unlinked contributions."""
