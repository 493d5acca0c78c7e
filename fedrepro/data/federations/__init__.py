"""Federations: each a pure function of (raw data, seed, parameters)."""
