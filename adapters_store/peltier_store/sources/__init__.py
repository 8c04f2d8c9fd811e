"""Artifacts outside of a server's store: in a directory, a bucket, or on the Hugging Face hub."""
