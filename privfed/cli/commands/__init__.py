"""The commands of `privfed`, one module each."""
