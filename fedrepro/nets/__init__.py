"""Networks as functions of their parameters."""
