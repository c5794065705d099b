"""What models and sketches of updates give away: whether a row was trained on, and whose sketch is whose."""
