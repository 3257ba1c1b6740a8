"""Conversations outside of a session: changed between answers, kept in files and in a log."""
