import httpx2
import pytest
from peltier_client.errors import UnexpectedAnswer
from peltier_client.resources import operations


def test_an_unexpected_answer_says_why() -> None:
    """The message names the type and the first thing wrong."""
    response = httpx2.Response(200, json={"status": "fine"})
    with pytest.raises(UnexpectedAnswer, match="not the expected HealthResponse: status: input should be 'ok'"):
        operations.health().read(response)


def test_activity_is_read_without_versions() -> None:
    """A server that nobody asked has only residents."""
    body = {"residents": [{"digest": "sha256:" + 64 * "0", "tier": "host"}], "num_residents": 1}
    answer = operations.activity().read(httpx2.Response(200, json=body))
    assert (answer.versions, answer.residents[0].tier) == ([], "host")
