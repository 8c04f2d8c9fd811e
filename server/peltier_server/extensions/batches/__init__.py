"""Batches: requests in a file that are answered when nothing else waits, with the answers in a file."""
