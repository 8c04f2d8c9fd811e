"""How long callers should wait before they ask again, in seconds: what `Retry-After` says."""

# The cause passes by itself: a full queue empties, a model finishes loading, a stopping replica is replaced.
SOON = 1.0
# An operator has to bring the store back.
STORE_GONE = 10.0
# Room comes when somebody deletes something.
STORE_FULL = 60.0
