"""Measurements; what they found stands in docs/performance.md and docs/privacy/utility.md."""
