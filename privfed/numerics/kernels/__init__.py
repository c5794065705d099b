"""The kernel of all k-means: each row's nearest center, and the sums of each center's rows, exactly."""
