"""Reading adapters from the Hugging Face hub, whose files are not trusted."""
