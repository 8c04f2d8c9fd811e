"""Spans of requests and batches. Without a tracer none of it is created."""
