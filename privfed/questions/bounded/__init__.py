"""Bounded forms of questions, with a proven bound on one record's or one client's contribution."""
