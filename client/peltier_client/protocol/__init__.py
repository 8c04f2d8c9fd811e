"""The wire protocol: every HTTP body as a typed model that client and server share."""
