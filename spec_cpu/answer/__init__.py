"""One answer as it is made: cycles become steps of text, and what they did and took is counted."""
