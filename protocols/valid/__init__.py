"""Proofs that an answer meets its statement, from hashes alone: docs/protocols/valid.md."""
