"""Passes: a draft model or a head, asked where what it brings is worth its time."""
