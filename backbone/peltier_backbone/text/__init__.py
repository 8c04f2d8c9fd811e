"""Tokens of texts: tokenizers, windows and packing."""
