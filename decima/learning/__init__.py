"""How policies learn: one loop, returns, baselines, updates; ``cluster`` and ``grid`` add only what differs."""
