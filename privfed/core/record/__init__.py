"""The transcript of a run, and the view that each party has of it."""
