"""The `spec-cpu` command line."""
