"""What a checkpoint says: its configuration, tensors and identity."""
