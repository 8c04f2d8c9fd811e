"""The error that the backbone raises for its user."""


class BackboneError(Exception):
    """The backbone cannot serve this checkpoint, name or device; the message is one sentence for the user."""

    is_user_error = True
