"""DeepRM's environment: a grid of resources and time on which jobs are booked, for many episodes at once.

In the order of the paper (Resource Management with Deep Reinforcement Learning, HotNets 2016, section 3):

* the model (3.1): machines and queue in ``config``, jobs in ``workloads.grid_jobs``, time in ``rules``;
* actions, rewards and the state as a picture (3.2): ``rules``; the arrays of the state and a step: ``grid``;
* episodes of the training algorithm (3.3): results in ``record``, Gymnasium environments in ``env``;
* other objectives (3.4): ``GridConfig.objective``.

Several machines and the weights of the reward are those of its successor (Chen, Xu and Wu, arXiv 1711.07440).
"""

import lazy_loader

# Names in ``__init__.pyi`` are imported on first use, since a grid does not need the environments.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
