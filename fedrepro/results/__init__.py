"""Records to numbers: the reproduction of a paper as three frames, and the verdict on it."""
