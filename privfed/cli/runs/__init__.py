"""What commands do in a run's folder: fit, select, attack."""
