"""The processor and the memory of this machine."""
