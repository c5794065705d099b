"""Questions that algorithms and metrics ask alike, each with its bounded form for differential privacy."""
