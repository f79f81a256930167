"""Training on a grid: DeepRM (HotNets 2016), its CNN and multi-machine variant, and A2cScheduler."""
