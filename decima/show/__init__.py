"""What people look at: tables, notes and pictures."""
