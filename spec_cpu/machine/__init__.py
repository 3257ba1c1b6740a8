"""What this machine has, and how much of it is left to this process."""
