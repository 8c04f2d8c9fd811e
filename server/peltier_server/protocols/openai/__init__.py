"""OpenAI's API for completions and models."""
