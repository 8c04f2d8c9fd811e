"""One forward pass for rows of any adapters."""
