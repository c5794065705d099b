"""The files of a run's folder: what was asked for, and its result."""
