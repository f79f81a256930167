"""Episodes recorded from published code, and their replay."""
