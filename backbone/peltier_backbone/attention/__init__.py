"""Attention over packed rows, and the places where adapters act on it."""
