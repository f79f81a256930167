"""Tables, notes, pictures and pages of results."""
