"""From a row of logits to the distribution that a token is drawn from.

`pipeline` is the samplers in their order, `logits` what they ask of a whole row.
"""
