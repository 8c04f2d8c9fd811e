"""Seconds that callers should wait before they retry, for `Retry-After`."""

# The cause is temporary: a full queue, a loading model, a stopping replica.
SOON = 1.0
# An operator has to restore the store.
STORE_GONE = 10.0
# Somebody has to delete something.
STORE_FULL = 60.0
