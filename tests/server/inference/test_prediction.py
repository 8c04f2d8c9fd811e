"""The writer of answers counts their bytes."""

import itertools
import threading
from collections.abc import Iterator

import pytest
from peltier_client.errors import InvalidInput, QueueFull
from peltier_client.protocol.administration import TenantQuotas
from peltier_client.protocol.rerank import RankedDocument
from peltier_server.auth.keyring import LOCAL
from peltier_server.context import RequestContext
from peltier_server.fairness.preparation import Preparation
from peltier_server.fairness.shared_bound import Held
from peltier_server.inference.answer_size import bytes_of_names
from peltier_server.inference.prediction import BYTES_ON_THE_LOOP, PIECE_BYTES, json_pieces, write_pieces
from peltier_server.quotas.enforcer import QuotaEnforcer
from peltier_server.quotas.rates import Rates
from peltier_server.settings import LimitSettings
from pydantic_core import to_json

_PIECE = b"x" * 1000
_MAX_BYTES = 200_000


@pytest.fixture
def preparation() -> Iterator[Preparation]:
    """It allows answers of 200,000 bytes, and half a million in progress."""
    limits = LimitSettings(max_answer_bytes=_MAX_BYTES, max_pending_answer_bytes=500_000)
    made = Preparation(limits, QuotaEnforcer(Rates(), lambda _: TenantQuotas()))
    yield made
    made.close()


@pytest.fixture
def context(preparation: Preparation) -> RequestContext:
    """The context of a caller whose answers are counted."""
    return RequestContext("1", known_caller=LOCAL, answer_bytes=Held(preparation.answer_bytes, LOCAL.tenant))


@pytest.mark.parametrize("num_before", [0, 150_000])
async def test_an_answer_ends_at_the_bound(preparation: Preparation, context: RequestContext, num_before: int) -> None:
    """Whatever was forecast: of pieces without end it takes those that fit, and those of the last turn."""
    taken = itertools.count()
    pieces = (_PIECE for _ in taken)
    with pytest.raises(InvalidInput, match="more than 200000 bytes, the most that max_answer_bytes of this server"):
        await write_pieces(preparation, context, pieces, num_before)
    assert 1000 * next(taken) <= _MAX_BYTES - num_before + BYTES_ON_THE_LOOP + PIECE_BYTES + 2000


async def test_what_is_written_is_counted(preparation: Preparation, context: RequestContext) -> None:
    """Also where nothing was reserved; without room for it the answer waits for a retry."""
    body = await write_pieces(preparation, context, itertools.repeat(_PIECE, 100))
    assert (body, preparation.answer_bytes.total) == (_PIECE * 100, len(body))
    with preparation.answer_bytes.hold("other", 250_000), pytest.raises(QueueFull):
        await write_pieces(preparation, context, itertools.repeat(_PIECE, 200))


async def test_the_rest_of_a_large_answer_is_written_in_a_thread(preparation, context):
    threads = list[str]()

    def pieces() -> Iterator[bytes]:
        for _ in range(150):
            threads.append(threading.current_thread().name)
            yield _PIECE

    await write_pieces(preparation, context, pieces())
    are_others = [name.startswith("preparation") for name in threads]
    assert are_others == sorted(are_others)
    assert are_others.count(False) == BYTES_ON_THE_LOOP // 1000 + 1


@pytest.mark.parametrize("count", [0, 1, 16, 17, 40])
def test_the_pieces_of_a_value_are_its_json(count: int) -> None:
    """Of lists of lists, models and objects, in an object or an iterator, and of what is around them."""
    models = [RankedDocument(index=number, relevance_score=0.5) for number in range(count)]
    vectors, terms = [[0.5], [1.0]] * count, [{"token": '"terms":[]', "weight": 0.5}] * count
    for value in (models, vectors, {"a": 1, "terms": terms, "b": {"c": [2]}, "gates": vectors}, [terms] * count):
        assert b"".join(json_pieces(value)) == to_json(value)
    item = {"index": 1, "embedding": vectors}
    assert b"".join(json_pieces({"data": iter([item] * count), "usage": 3})) == to_json(
        {"data": [item] * count, "usage": 3}
    )


def test_names_are_counted_in_json() -> None:
    """They are known only when an answer is read: labels that apply, entities and the text of a span."""
    names = ({"labels": ["é"]}, {"entities": [{"text": "é"}]}, {"answer": "é"}, {"scores": {"a": 0.5}})
    assert [bytes_of_names([one]) for one in names] == [6, 15, 4, 0]


def test_a_long_list_has_several_pieces() -> None:
    """Also within the items of an iterator, so that other threads run in between."""
    vectors = [[0.5] * 100] * 40
    assert max(map(len, json_pieces({"data": iter([{"vectors": vectors}] * 3)}))) < len(to_json(vectors)) / 2
