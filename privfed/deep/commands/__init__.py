"""What the commands do for runs that train models."""
