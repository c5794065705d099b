"""The commands `privfed schema` and `privfed check`."""
