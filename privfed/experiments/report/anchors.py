"""Results of published differentially private clusterings on the sets of `datasets`, for comparison.

The numbers are the cost of the released centers relative to central k-means: mean of 20 seeds (10 on "big"),
record level, add or remove, delta = 1 / (n ln n) with n rows (IBM's is pure epsilon). FastLloyd is run as
published, although its released code does not satisfy its claim: noise is truncated to integers, and sums
and counts share one seed.
"""

from __future__ import annotations

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 10.0)

ANCHORS: dict[str, dict[str, tuple[float, ...]]] = {
    "big": {
        "diffprivlib k-means (IBM)": (2.699, 1.789, 1.734, 1.418, 1.322, 1.293),
        "FastLloyd": (1.877, 1.311, 1.244, 1.249, 1.203, 1.203),
        "LSH clustering (Google), central": (2.373, 1.576, 1.361, 1.238, 1.220, 1.179),
    },
    "blobs": {
        "diffprivlib k-means (IBM)": (2.001, 1.168, 1.149, 1.042, 1.013, 1.006),
        "FastLloyd": (1.368, 1.222, 1.210, 1.213, 1.208, 1.207),
        "LSH clustering (Google), central": (2.989, 1.344, 1.253, 1.079, 1.125, 1.096),
    },
    "digits": {
        "diffprivlib k-means (IBM)": (5.057, 2.843, 2.144, 1.901, 1.761, 1.568),
        "FastLloyd": (2.025, 1.704, 1.579, 1.463, 1.410, 1.350),
        "LSH clustering (Google), central": (3.234, 1.988, 1.684, 1.517, 1.424, 1.342),
    },
    "g2": {
        "diffprivlib k-means (IBM)": (6.082, 2.402, 1.656, 1.251, 1.051, 1.011),
        "FastLloyd": (1.480, 1.084, 1.052, 1.002, 1.001, 1.000),
        "LSH clustering (Google), central": (2.125, 1.271, 1.144, 1.099, 1.051, 1.025),
    },
}
"""Source of a set -> method -> cost ratio at each of `EPSILONS`."""
