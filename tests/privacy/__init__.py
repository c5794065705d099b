"""Tests of differential privacy, and what they share."""
