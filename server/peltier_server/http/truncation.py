"""The header that tells how many inputs were truncated."""

TRUNCATED = "x-truncated-inputs"


def truncation_header(num_inputs: int) -> dict[str, str]:
    """The header for `num_inputs` truncated inputs; none if none were."""
    return {TRUNCATED: str(num_inputs)} if num_inputs else {}
