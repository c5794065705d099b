"""What a person at the terminal sees: tables, pictures, progress."""
