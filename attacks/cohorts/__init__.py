"""What changing cohorts and unlinked contributions give away about single clients."""
