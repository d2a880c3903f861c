"""Kernels of one training step: native, PyTorch, GPU."""
