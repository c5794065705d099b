"""The command line of privfed."""

import gc

# A process of one command makes many objects while it imports, and drops few: garbage is collected rarely.
gc.set_threshold(100_000)
