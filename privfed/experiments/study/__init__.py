"""The parts of a study: its file, its axes, its data sets and its cells."""
