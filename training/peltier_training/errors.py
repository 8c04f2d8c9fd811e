"""What training can refuse."""


class TrainingError(Exception):
    """Data, settings or a run that cannot work; the message is one sentence for the user."""

    is_user_error = True


class NotFiniteError(TrainingError):
    """An adapter whose outputs are not finite numbers."""
