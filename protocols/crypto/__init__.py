"""Primitives as secure sums use them: keys, keystreams, secret sharing, the fixed-point grid."""
