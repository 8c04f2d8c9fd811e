"""Who may come in: keys, tokens, scopes."""
