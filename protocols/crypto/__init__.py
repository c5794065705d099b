"""Primitives of the secure sums: keys, keystreams, secret sharing, the fixed-point grid."""
