"""The header that tells how many inputs were truncated."""

from typing import Any

_NAME = "x-truncated-inputs"
# As OpenAPI describes it.
TRUNCATION_HEADER: dict[str, Any] = {
    _NAME: {"description": "How many inputs were truncated; absent if none.", "schema": {"type": "integer"}}
}


def truncation_header(num_inputs: int) -> dict[str, str]:
    """The header for `num_inputs` truncated inputs; none if none were."""
    return {_NAME: str(num_inputs)} if num_inputs else {}
