"""Reproduction of five federated-learning papers: one trainer, one pipeline, tables beside the published numbers."""

__version__ = "0.1.0"

PLUGINS = "fedrepro.methods"  # the entry points by which a package adds a method
