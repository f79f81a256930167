"""How good schedulers are: the same sequences and the same luck for all, with intervals."""
