"""Opening a federation: parameters become an agreement, and clients become parties of a secure sum."""
