"""Text to tokens and back: templates, references, what may be shown of an unfinished answer."""
