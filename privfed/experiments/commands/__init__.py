"""The commands `privfed tradeoff`, `privfed compare` and `privfed demo`."""
