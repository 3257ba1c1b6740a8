"""The cycle of speculative decoding: propose, score, verify, commit; and how much to draft.

`decode` is the algorithm, `verify` the rejection rules, `prefill` what happens before the first
cycle.
"""
