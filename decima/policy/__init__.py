"""The neural scheduler of Decima (SIGCOMM 2019, section 5)."""
