"""`spec-cpu chat`: a conversation at the terminal, or line by line from a pipe."""

from spec_cpu_cli.chat.command import chat as chat
