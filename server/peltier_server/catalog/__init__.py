"""Which versions there are, which one a name means, and how they are published, changed and removed."""
