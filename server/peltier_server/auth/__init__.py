"""Who calls: keys, tokens, scopes."""
