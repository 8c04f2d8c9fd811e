"""Which versions there are and which one is meant; how they come and go."""
