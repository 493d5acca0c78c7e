"""The foundation: types, trees of tensors, vectorising, random streams, optimisers, precision."""
