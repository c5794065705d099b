"""Sums that clients open: the set-up of a group, the relay, replicas, and sums under a group mask."""
