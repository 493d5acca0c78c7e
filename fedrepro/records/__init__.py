"""A run's configuration, record and curves, and the path of every file of the project."""
