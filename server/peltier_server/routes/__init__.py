"""Thin functions from HTTP to the rooms."""
