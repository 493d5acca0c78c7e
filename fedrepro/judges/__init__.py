"""Judges of trained models: classifiers by their scores, generators by their samples."""
