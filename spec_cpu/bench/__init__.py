"""Benchmarks: ways to decode, timed in turn on the same prompts, and their results.

`rivals` are other programs.
"""
