"""Encrypted sums (CKKS): the server adds ciphertexts, the clients decrypt the total."""
