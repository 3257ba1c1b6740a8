"""Look-ups: they take no passes, and are asked for every node of the tree."""
