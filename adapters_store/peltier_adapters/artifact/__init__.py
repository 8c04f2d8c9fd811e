"""The file that holds an adapter."""
