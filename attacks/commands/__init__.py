"""The commands `privfed attack` and `privfed audit`."""
