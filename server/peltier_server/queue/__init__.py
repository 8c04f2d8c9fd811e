"""Rows that wait: who is let in, in which order they go, and which make a batch."""
