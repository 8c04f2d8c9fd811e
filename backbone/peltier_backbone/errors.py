"""What a backbone can refuse."""


class BackboneError(Exception):
    """A checkpoint, a name or a device that cannot be served; the message is one sentence for the user."""

    is_user_error = True
