"""Importer of AdapterHub's files."""
