import httpx2
import pytest
from peltier_client.errors import UnexpectedAnswer
from peltier_client.resources import operations


def test_an_unexpected_answer_says_why() -> None:
    """The message names the type and the first thing wrong."""
    response = httpx2.Response(200, json={"status": "fine"})
    with pytest.raises(UnexpectedAnswer, match="not the expected HealthResponse: status: input should be 'ok'"):
        operations.health().read(response)
