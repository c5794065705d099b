"""Tables, pictures and progress for a person at the terminal."""
