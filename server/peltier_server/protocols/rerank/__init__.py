"""The API of rerankers: that of Cohere and Jina, and that of text-embeddings-inference."""
