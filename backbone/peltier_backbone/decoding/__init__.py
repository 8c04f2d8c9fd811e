"""What a decoder keeps between its steps."""
