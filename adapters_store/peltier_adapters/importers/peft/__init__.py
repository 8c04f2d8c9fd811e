"""PEFT's files."""
