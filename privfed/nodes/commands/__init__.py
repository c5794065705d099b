"""The commands `privfed keys`, `privfed journal` and `privfed flower`."""
