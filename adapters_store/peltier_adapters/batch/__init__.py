"""Computes one forward pass for rows of any adapters."""
