"""Other machines that hold a target's layers: their addresses, and the way to their servers."""
