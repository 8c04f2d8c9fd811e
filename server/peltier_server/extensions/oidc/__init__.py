"""Tokens of an OpenID Connect provider in place of keys."""
