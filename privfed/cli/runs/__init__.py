"""The work of commands in a run's folder: fit, select, attack."""
