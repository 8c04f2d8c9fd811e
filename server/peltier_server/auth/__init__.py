"""Authentication: keys, tokens and scopes."""
