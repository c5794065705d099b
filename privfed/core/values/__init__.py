"""Numbers, domains and ranges, and the terms of a privacy guarantee."""
