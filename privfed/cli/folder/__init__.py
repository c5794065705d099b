"""The files of a run's folder: its parameters and its result."""
