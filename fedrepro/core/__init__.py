"""What everything stands on: types, trees of tensors, vectorising, random streams, optimisers, precision."""
