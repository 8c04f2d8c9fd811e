"""Text generation with T5."""
