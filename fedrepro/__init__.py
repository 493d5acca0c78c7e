"""Reproduction of five federated-learning papers: one trainer, one pipeline, tables beside the published numbers."""

__version__ = "0.1.0"
