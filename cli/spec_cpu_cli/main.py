"""Where the program begins. It imports nothing heavy, so that Ctrl-C finds a handler at once."""

from __future__ import annotations

import sys

from spec_cpu_cli.startup import ends_at_once, never_ignored


def main() -> None:
    """Run the program; every foreseen error is one line on standard error and an exit code."""
    with never_ignored():
        with ends_at_once():
            from spec_cpu_cli.app import run_program
        sys.exit(run_program())
