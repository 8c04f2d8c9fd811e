"""Importers of checkpoints of the papers' authors."""
