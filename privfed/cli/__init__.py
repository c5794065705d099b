"""The command line of privfed."""
