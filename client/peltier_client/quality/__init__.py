"""Metrics of answers, and the comparison of two versions."""
