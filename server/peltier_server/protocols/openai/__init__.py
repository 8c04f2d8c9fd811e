"""OpenAI's completions and models."""
