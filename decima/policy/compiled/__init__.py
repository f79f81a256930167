"""Compiled code of the policy on a CPU: graphs of observations, inference, dense layers with gradients."""
