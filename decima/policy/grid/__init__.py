"""Policy networks for DeepRM's grid, and their files."""
