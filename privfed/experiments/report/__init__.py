"""What a study says: summaries, tables, pictures and one page."""
