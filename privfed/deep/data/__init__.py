"""Data for experiments with models: images of many clients, turned, skewed, and changing over the rounds."""
