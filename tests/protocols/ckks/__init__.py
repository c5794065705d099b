"""Tests of encrypted sums."""
