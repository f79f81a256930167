"""Compiled code of the policy on a CPU: graphs of observations, inference, gradients."""
