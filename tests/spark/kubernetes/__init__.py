"""A stand-in for a Kubernetes cluster: pods of executors are processes of this machine."""
