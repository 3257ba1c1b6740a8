"""The engine: one thread that owns the models, and many answers that share its passes."""
