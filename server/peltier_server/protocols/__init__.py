"""Protocols of other servers, a folder each."""
