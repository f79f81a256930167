"""Training on DeepRM's grid: DeepRM (HotNets 2016), its CNN and multi-machine variants, and A2cScheduler."""
