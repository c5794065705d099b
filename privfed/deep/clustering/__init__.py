"""Which clients belong together, from their models' updates: arrays in, labels out; no client, no torch."""
