"""To and from Gymnasium: policies that other libraries learned become schedulers; environments that papers can cite."""

import lazy_loader

# What ``__init__.pyi`` names; it is loaded when it is asked for: Gymnasium itself looks for environments here.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
