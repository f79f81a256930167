"""Rules that shift work to times of low carbon intensity or price, one per module. Each modifies another scheduler."""
