"""The checkpoints of the papers' authors."""
