"""Ways to decode, timed against each other in turn, and what their rounds come to.

`rivals` are other programs.
"""
