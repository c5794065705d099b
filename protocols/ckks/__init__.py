"""Sums under homomorphic encryption (CKKS): the server adds ciphertexts, the clients open the total."""
