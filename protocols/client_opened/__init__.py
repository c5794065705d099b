"""Sums that clients open: the set-up of their group, the relaying coordinator, clients and their replays."""
