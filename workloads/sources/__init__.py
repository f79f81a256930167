"""Where jobs come from: one source, one file."""
