"""Plans, runs, measures and stores the cells of a study."""
