"""What the code says about each method: its drawing, its counts and its settings."""
