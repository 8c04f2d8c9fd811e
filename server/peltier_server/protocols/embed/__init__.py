"""The embeddings API of text-embeddings-inference."""
