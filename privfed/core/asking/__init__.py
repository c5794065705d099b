"""Questions, the statistics that answer them, and what a question declares about its answer."""
