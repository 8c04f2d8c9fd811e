"""Texts that a T5 generates."""
