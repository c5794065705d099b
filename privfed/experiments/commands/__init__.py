"""The commands `privfed tradeoff` and `privfed compare`."""
