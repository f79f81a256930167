"""Networks for DeepRM's grid, and their files."""
