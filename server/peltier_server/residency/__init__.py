"""Which adapters are in memory, and how they come and go."""
