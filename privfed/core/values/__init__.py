"""Numbers, domains and ranges, and the words of a privacy guarantee."""
