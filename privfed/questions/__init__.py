"""Questions that both algorithms and metrics ask, with their bounded forms for differential privacy."""
