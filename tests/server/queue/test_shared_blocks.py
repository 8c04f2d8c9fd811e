"""Rows of one text cost what is computed for them."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.row import Row, plan_stages
from peltier_adapters.residency.bank import Banks, Resident
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded
from peltier_server.queue.batch import BatchBounds, BatchRoom
from peltier_server.queue.batcher import Batcher
from peltier_server.queue.fair_queue import FairQueue
from peltier_server.queue.prices import Prices
from peltier_server.queue.ticket import Results, Terms, Ticket

MAX_COST = 10**9
# The first block of an adapter; 6 is none, of the six blocks of MiniLM.
DEPTHS = (0, 2, 4, 5)
ROWS = st.lists(st.tuples(st.sampled_from((*DEPTHS, 6)), st.integers(20, 23), st.sampled_from("ab")), min_size=1)


@pytest.fixture(scope="module")
def residents(minilm: Backbone, make_artifact: Callable[..., bytes]) -> dict[int, Resident | None]:
    """An adapter for each depth."""
    banks = Banks(minilm)
    made = {depth: make_artifact(minilm, "lora", overrides={"first_block": str(depth)}) for depth in DEPTHS}
    return {depth: banks.add(read_artifact(data, minilm)) for depth, data in made.items()} | {6: None}


def _row(resident: Resident | None, tokens: int, tenant: str) -> Row:
    return Row(Encoded((5,) * tokens, (0,) * tokens), resident, scope=tenant)


def _take(prices: Prices, rows: Sequence[Row]) -> tuple[Counter[str], list[Ticket]]:
    """The cost of one batch of all rows by tenant, and its tickets."""
    queue = FairQueue(MAX_COST, lambda _: 1.0)
    cost = Counter[str]()
    for row in rows:
        queue.put(Ticket([row], prices.price([row]), Results(1), tenant=row.scope or ""))
    charge = queue._serve

    def note(ticket: Ticket, num_rows: int, paid: int) -> None:
        cost[ticket.tenant] += paid
        charge(ticket, num_rows, paid)

    queue._serve = note  # type: ignore[method-assign]
    return cost, list(queue.take(BatchRoom(MAX_COST, len(rows))))


@given(given_rows=ROWS)
@settings(max_examples=settings().max_examples // 2)
async def test_a_batch_costs_what_its_stages_compute(given_rows, minilm, residents):
    """For any depths, texts and tenants in any order, to the rounding of each row; prices learn from the same work."""
    prices, num_layers = Prices(minilm), minilm.config.num_layers
    rows = [_row(residents[depth], tokens, tenant) for depth, tokens, tenant in given_rows]
    cost, tickets = _take(prices, rows)
    stages = plan_stages(sorted(rows, key=lambda row: row.order), num_layers)
    computed = [(len(stage.layers), row.num_inputs) for stage in stages for row in stage.rows]
    computed = computed or [(num_layers, row.num_inputs) for row in rows]
    tokens = sum(layers * num for layers, num in computed) / num_layers
    squares = sum(layers * num * num for layers, num in computed) / num_layers
    pair = prices._units.input_pair
    # The adapters' own work is the same as apart.
    apart = [prices.price([row]) for row in rows]
    own = sum(price.work.products for price in apart) * prices.factors.products
    own += sum(
        prices.price([Row(row.encoded, row.resident)]).weights for row in {row.resident: row for row in rows}.values()
    )
    expected = tokens + squares * pair * prices.factors.pairs + own
    assert sum(cost.values()) == pytest.approx(expected, abs=len(rows))
    works = [ticket.price.work for ticket in tickets]
    assert sum(work.tokens for work in works) == pytest.approx(tokens)
    assert sum(work.pairs for work in works) == pytest.approx(squares * pair)


async def test_a_tenant_pays_the_same_beside_the_same_text(minilm, residents):
    """Another tenant's rows of the text, before and after its own, make its rows neither cheaper nor dearer."""
    prices = Prices(minilm)
    own = [_row(residents[depth], 20, "a") for depth in (5, 4, 5, 2)]
    other = [_row(resident, 20, "b") for resident in residents.values()]
    alone, _ = _take(prices, own)
    among, _ = _take(prices, [*other, *own, *other])
    # The weights of an adapter are charged to the first who needs it.
    weights = sum(prices.price([row]).weights for row in own)
    assert among["a"] <= alone["a"] <= among["a"] + weights
    assert alone["a"] < 0.6 * sum(prices.price([row]).rows[0] for row in own)


@pytest.mark.parametrize("max_tokens", [300, 1000])
async def test_tenants_share_what_is_computed(max_tokens, minilm, residents):
    """A tenant with many tasks on each text, beside one with a task on each: their costs differ by at most a batch,
    and no batch has more tokens than it may have."""
    prices = Prices(minilm)
    batcher = Batcher(BatchBounds(1000, max_tokens), max_queue_tokens=10**6, max_decode_rows=4, prices=prices)
    texts = [Encoded((text,) * 20, (0,) * 20) for text in range(40)]
    many = [Row(text, residents[5], scope="a") for text in texts for _ in range(20)]
    rows = {"a": many, "b": [_row(residents[0], 20, "b")] * 800}
    waiting = [asyncio.ensure_future(batcher.compute(own, Terms(tenant))) for tenant, own in rows.items()]
    await asyncio.sleep(0)
    served, num_rows = Counter[str](), Counter[str]()
    while len(batcher.queued_tokens_by_tenant()) == 2 and (batch := batcher.next(wait=False)) is not None:
        assert batch.tokens <= max_tokens
        for ticket in batch.tickets:
            work = ticket.price.work._replace(weights=0.0)
            served[ticket.tenant] += sum(one * factor for one, factor in zip(work, prices.factors, strict=True))
            num_rows[ticket.tenant] += len(ticket.rows)
        # The rounding of each row comes on top.
        assert abs(served["a"] - served["b"]) <= max_tokens + sum(num_rows.values()) / 2
    assert num_rows["a"] > 1.5 * num_rows["b"]
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
