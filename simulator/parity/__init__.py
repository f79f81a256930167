"""Parity with published simulators: replay episodes that were recorded from the Decima and DeepRM code."""
