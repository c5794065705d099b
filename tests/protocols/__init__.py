"""Tests of the secure sums, and the small federation that they drive."""
