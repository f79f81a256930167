"""Rules that shift work to times of low carbon intensity or price, around any other scheduler, one file each."""
