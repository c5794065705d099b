"""Evidence as one linear system: every sum that was shown is an equation in the rows that took part."""
