"""The report of a study: summaries, tables, pictures and one HTML page."""
