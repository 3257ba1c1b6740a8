"""What `run` is asked for in several files of tests."""

from __future__ import annotations

PATIENCE = 300.0  # seconds until a child counts as stuck, on however busy a machine
TOKENS = 300
ASKED = ["--seed", "1", "-n", str(TOKENS), "--ignore-eos", "why?"]
ENDLESS = ["--seed", "1", "-n", "60000", "-c", "65536", "--ignore-eos", "why?"]
