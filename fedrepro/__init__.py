"""Reproduction of five federated-learning papers: one trainer, one pipeline, tables beside the published numbers."""

import os

# Torch's idle threads spin for milliseconds, in the way of those that run the loops of kernels.py.
# Read as torch loads.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

__version__ = "0.1.0"
