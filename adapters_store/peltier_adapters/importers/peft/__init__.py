"""Importer of PEFT's files."""
