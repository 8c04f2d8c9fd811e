"""Checkpoints of backbones as they are published, as directories that Peltier serves."""
