"""What the adapter store can refuse."""

from collections.abc import Sequence


class AdapterError(Exception):
    """Anything about an adapter that the user must change; the message is one sentence."""

    is_user_error = True


class InputError(AdapterError):
    """An input that does not fit its task."""


class ArtifactError(AdapterError):
    """An artifact refused, with every reason at once."""

    def __init__(self, reasons: Sequence[str]) -> None:
        self.reasons = list(reasons)
        more = f" (and {len(self.reasons) - 1} more reasons)" if len(self.reasons) > 1 else ""
        super().__init__(f"{self.reasons[0]}{more}")
