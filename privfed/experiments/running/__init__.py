"""How the cells of a study are planned, run, measured and stored."""
