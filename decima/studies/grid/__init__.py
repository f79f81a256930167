"""Studies of schedulers on grids: DeepRM (HotNets 2016), its CNN variant (2017), A2cScheduler (2020)."""
