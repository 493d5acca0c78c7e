"""One run: the trainer, its checkpoints, its record."""
