"""The cost of rows in the queue, relative to each other."""

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Banks
from peltier_adapters.spec.decoding import Decoding
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded
from peltier_server.queue.batch import BatchBounds
from peltier_server.queue.batcher import Batcher
from peltier_server.queue.prices import MAX_CHANGE, Estimator, Prices
from peltier_server.queue.priors import CPU, BackboneUnits, GpuRates, Work, choose_priors, gpu_priors
from peltier_server.queue.ticket import Results, Terms, Ticket

# Of a CPU and a T5.
PRIORS = CPU._replace(steps=40.0)
TRUE = Work(batch=40.0, tokens=1.0, products=2.0, pairs=2.6, prefixes=35.0, weights=40.0, steps=60.0)
AMOUNTS = st.one_of(st.just(0.0), st.floats(0, 1e6))
BATCHES = st.lists(
    st.tuples(st.builds(Work, st.just(1.0), *(AMOUNTS for _ in PRIORS[1:])), st.floats(0, 1e6)), max_size=30
)
MakeRow = Callable[..., Row]


def _draw(draw: random.Random) -> Work:
    tokens = draw.uniform(3, 2000)
    products, pairs, prefixes, weights = (draw.choice((0, draw.random())) for _ in range(4))
    batch = draw.choice((0.0, 1.0))
    return Work(batch, tokens, tokens * products, tokens * pairs, 0.02 * tokens * prefixes, 60 * weights, 1 - batch)


def test_it_learns_what_a_machine_takes():
    """Each kind by itself, within a sixth of what it takes, from batches of mixed work with a tenth of noise."""
    estimator, draw = Estimator(PRIORS), random.Random(0)
    for _ in range(800):
        work = _draw(draw)
        seconds = 2e-4 * sum(one * factor for one, factor in zip(work, TRUE, strict=True))
        estimator.observe(work, seconds * draw.uniform(0.9, 1.1))
    found = estimator.factors
    assert all(abs(one / true - 1) < 1 / 6 for one, true in zip(found[1:], TRUE[1:], strict=True))


def test_it_knows_how_long_a_token_takes():
    """On this machine, within a tenth; it expects forever before the first batch."""
    estimator, draw = Estimator(PRIORS), random.Random(0)
    assert estimator.seconds_per_token == math.inf
    for _ in range(800):
        work = _draw(draw)
        estimator.observe(work, 3e-4 * sum(one * factor for one, factor in zip(work, TRUE, strict=True)))
    assert abs(estimator.seconds_per_token / 3e-4 - 1) < 0.1


def test_one_slow_batch_makes_tokens_slow_at_once():
    """It outweighs the batches before; after a stall the former time of a token returns in half a second of batches."""
    estimator, work = Estimator(PRIORS), Work(batch=1.0, tokens=475.0)
    for _ in range(1000):
        estimator.observe(work, 0.05)
    estimator.observe(work, 0.5)
    assert estimator.seconds_per_token > 9e-4
    for _ in range(10):
        estimator.observe(work, 0.05)
    assert estimator.seconds_per_token < 1.1e-4


def test_batches_of_one_kind_teach_nothing_of_the_others():
    """Plain rows alone leave every price of an adapter as it was, but for the ridge's own pull."""
    estimator, draw = Estimator(PRIORS), random.Random(0)
    for _ in range(200):
        tokens = draw.uniform(3, 2000)
        estimator.observe(Work(batch=1.0, tokens=tokens), 1e-4 * (25 + tokens))
    found = estimator.factors
    assert all(abs(one / prior - 1) < 0.1 for one, prior in zip(found, PRIORS, strict=True))


def test_steps_teach_nothing_of_what_a_batch_costs():
    estimator, draw = Estimator(PRIORS), random.Random(0)
    for _ in range(200):
        tokens = draw.uniform(3, 200)
        estimator.observe(Work(tokens=tokens, steps=1.0), 1e-4 * (100 + tokens))
    assert estimator.factors.steps > 1.5 * PRIORS.steps
    assert estimator._scaled.batch == PRIORS.batch


@given(batches=BATCHES)
def test_whatever_is_measured_prices_stay_near_their_priors(batches: list[tuple[Work, float]]):
    """Finite, positive, within the stated factor, and a token is a token."""
    estimator = Estimator(PRIORS)
    for work, seconds in batches:
        estimator.observe(work, seconds)
    for factor, prior in zip(estimator.factors, PRIORS, strict=True):
        assert math.isfinite(factor)
        assert prior / MAX_CHANGE <= factor <= prior * MAX_CHANGE
    assert estimator.factors.tokens == 1


def test_one_slow_batch_changes_little():
    estimator, draw = Estimator(PRIORS), random.Random(0)
    for _ in range(100):
        work = _draw(draw)
        estimator.observe(work, 1e-4 * sum(one * prior for one, prior in zip(work, PRIORS, strict=True)))
    before = estimator.factors
    estimator.observe(_draw(draw), 1.0)
    assert all(abs(one / other - 1) < 0.2 for one, other in zip(estimator.factors, before, strict=True))


def _encoded(tokens: int) -> Encoded:
    return Encoded((5,) * tokens, (0,) * tokens)


@pytest.fixture(scope="module")
def make_row(minilm: Backbone, make_artifact: Callable[..., bytes]) -> MakeRow:
    """A row of so many tokens with an adapter on MiniLM, made once for each kind."""
    banks, residents = Banks(minilm), {}

    def make(tokens: int, preset: str = "", **overrides: str) -> Row:
        key = (preset, *overrides.items())
        if preset and key not in residents:
            residents[key] = banks.add(read_artifact(make_artifact(minilm, preset, overrides=overrides), minilm))
        return Row(_encoded(tokens), residents.get(key))

    return make


def test_a_plain_row_costs_its_tokens_and_a_little_for_attention(make_row: MakeRow, minilm: Backbone):
    """Up to 64 tokens within two of them; a row of 500 a quarter more."""
    prices = Prices(minilm)
    for tokens in (3, 11, 64):
        assert tokens <= prices.price([make_row(tokens)]).rows[0] <= tokens + 2
    assert 1.2 * 500 < prices.price([make_row(500)]).rows[0] < 1.4 * 500


def test_an_adapter_costs_what_it_computes(make_row: MakeRow, minilm: Backbone):
    """A small one next to nothing, a large one as much as the backbone, a long prefix its layout for every row."""
    prices, tokens = Prices(minilm), 40
    plain = prices.price([make_row(tokens)])
    compacter = prices.price([make_row(tokens, "compacter")])
    large = prices.price([make_row(tokens, "pfeiffer", bottleneck="2048")])
    prefix = prices.price([make_row(tokens, "prefix", length="512")])
    assert plain.rows[0] <= compacter.rows[0] <= plain.rows[0] + 1
    assert compacter.weights <= 1
    assert 1.8 * plain.rows[0] < large.rows[0] < 2.1 * plain.rows[0]
    assert 10 < large.weights < 25
    assert plain.rows[0] + 20 < prefix.rows[0] < plain.rows[0] + 40


def test_a_head_of_tokens_costs_its_products_for_each_token(minilm: Backbone, make_artifact: Callable[..., bytes]):
    """A head of 1,024 tags takes a twenty-seventh of the blocks for each token; other heads are computed once a row."""
    prices, tokens = Prices(minilm), 40
    tags = [f"B-{number}" for number in range(1024)]

    def products(**task: Any) -> float:
        artifact = read_artifact(make_artifact(minilm, "bitfit", labels=tags, **task), minilm)
        return prices.price([Row(_encoded(tokens), Banks(minilm).add(artifact))]).work.products

    assert products(task_type="token-classification") == pytest.approx(tokens * products())
    assert products() == pytest.approx(1 / 27)


def test_a_step_costs_what_a_decoder_computes(t5: Backbone, make_artifact: Callable[..., bytes]):
    """A token that is written passes the output layer; an adapter adds to it."""
    artifact = read_artifact(make_artifact(t5, "houlsby", overrides={"bottleneck": "384"}), t5)
    row, prices = Row(_encoded(6), Banks(t5).add(artifact)), Prices(t5)
    plain, adapted = prices.price([Row(_encoded(6))], drafted=True), prices.price([row], drafted=True)
    assert 1 <= plain.step < adapted.step
    assert plain.rows[0] < adapted.rows[0]
    scored = prices.price([row])
    assert scored.rows[0] > adapted.rows[0]


def test_measured_batches_change_prices(make_row: MakeRow, minilm: Backbone):
    """Where a large adapter's products take three times as long as was expected, its rows get dearer."""
    prices = Prices(minilm)
    rows = [(make_row(40), 1.0), (make_row(40, "pfeiffer", bottleneck="2048"), 4.0)]
    before = [prices.price([row]).rows[0] for row, _ in rows]
    for number in range(200):
        row, seconds = rows[number % 2]
        count = 1 + number % 7
        prices.observe([(prices.price([row] * count), row.resident)], seconds * count)
    after = [prices.price([row]).rows[0] for row, _ in rows]
    assert after[0] <= before[0] + 1
    assert 1.5 * before[1] < after[1] < 5 * before[1]


def test_shared_blocks_teach_nothing_of_a_token(make_row: MakeRow, minilm: Backbone):
    """Rows of one text are computed in half of the time if they share half of the blocks; a token takes as long."""
    alone, shared = Prices(minilm), Prices(minilm)
    row = make_row(40, "lora", first_block="3")
    for count in (10, 20, 100) * 30:
        alone.observe([(alone.price([row] * count), row.resident)], 0.001 * (count + 1))
        price = shared.price([row] * count)
        for number in range(count):
            price = price.sharing(number, 3)
        shared.observe([(price, row.resident)], 0.001 * (count / 2 + 1))
    assert shared.seconds_per_token == pytest.approx(alone.seconds_per_token, rel=0.1)
    assert shared.price([row]).rows[0] == pytest.approx(alone.price([row]).rows[0], abs=2)


def test_measured_steps_change_the_price_of_steps(t5: Backbone, make_artifact: Callable[..., bytes]):
    """Where a large adapter's products take three times as long as was expected, so do its texts; before the first
    batch a step says how long a token takes."""
    artifact = read_artifact(make_artifact(t5, "houlsby", overrides={"bottleneck": "2048"}), t5)
    prices = Prices(t5)
    rows, priors = [Row(_encoded(6)), Row(_encoded(6), Banks(t5).add(artifact))], prices.factors
    before = [prices.price([row], drafted=True).step for row in rows]
    for number in range(400):
        row = rows[number % 2]
        price, count = prices.price([row], drafted=True), 1 + number % 7
        seconds = 1e-3 * sum(
            (1 + 2 * (kind == "products"))
            * factor
            * (1 if kind == "steps" else amount * (count if kind != "weights" else 1))
            for kind, amount, factor in zip(priors._fields, price.step_work, priors, strict=True)
        )
        prices.observe_step([(price, row.resident)] * count, seconds)
    after = [prices.price([row], drafted=True).step for row in rows]
    assert prices.seconds_per_token > 0
    assert after[0] <= before[0] + 1
    assert 1.5 * before[1] < after[1] < 5 * before[1]


async def test_batches_and_shares_are_of_cost(make_row: MakeRow, minilm: Backbone):
    """Beside rows that cost twice as much another tenant gets twice as many, and a batch is no longer for them; the
    weights of an adapter count once in a batch."""
    prices = Prices(minilm)
    rows = {"a": make_row(40), "b": make_row(40, "pfeiffer", bottleneck="2048")}
    batcher = Batcher(BatchBounds(1000, 1000), max_queue_tokens=100_000, max_decode_rows=4, prices=prices)
    waiting = [asyncio.ensure_future(batcher.compute([row] * 100, Terms(tenant))) for tenant, row in rows.items()]
    await asyncio.sleep(0)
    batch = batcher.next()
    cost = {tenant: sum(sum(one.price.rows) for one in batch.tickets if one.tenant == tenant) for tenant in rows}
    weights = prices.price([rows["b"]]).weights
    assert sum(cost.values()) + weights <= 1000 < sum(cost.values()) + weights + prices.price([rows["b"]]).rows[0]
    assert abs(cost["a"] - cost["b"] - weights) <= prices.price([rows["b"]]).rows[0]
    assert batcher.queued_tokens == 40 * (200 - batch.num_rows)
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_step_costs_for_each_beam(t5: Backbone):
    row = Row(_encoded(6))
    price = Prices(t5).price([row], drafted=True)
    ticket = Ticket([row], price, Results(1), decoding=Decoding(5, num_beams=3))
    assert ticket.step_cost == 3 * price.step
    assert ticket.tokens == 6 + 15


async def test_the_first_pass_of_texts_is_learnt_with_their_first_step(t5: Backbone):
    """A GPU computes both before the host reads the first token: the time of both together is that of one batch with
    their inputs and one step."""
    prices, row = Prices(t5), Row(_encoded(6))
    price = prices.price([row], drafted=True)
    work = Work(*map(sum, zip(price.work, price.step_work, Work(batch=1.0, steps=1.0), strict=True)))
    cost = sum(amount * factor for amount, factor in zip(work, prices.factors, strict=True))
    prices.observe_step([(price, None)], 1e-3 * cost, joined=[(price, None)])
    assert prices.seconds_per_token == pytest.approx(1e-3)


BFLOAT16 = torch.bfloat16
CUDA = torch.device("cuda")
T5_BASE = {"hidden_size": 768, "num_heads": 12, "kv_size": 64, "intermediate_size": 3072, "vocab_size": 32128}
T5_BASE |= {"num_layers": 12, "num_decoder_layers": 12, "gated": False}
T5_LARGEST = {"hidden_size": 1024, "num_heads": 128, "kv_size": 128, "intermediate_size": 65536, "vocab_size": 32128}
T5_LARGEST |= {"num_layers": 24, "num_decoder_layers": 24, "gated": False}


def _units(t5: Backbone, shape: dict[str, Any]) -> BackboneUnits:
    return BackboneUnits(replace(t5.t5.config, **shape))


# TFLOP/s with tensor cores in bfloat16 and without, and TB/s, as published for L4, A10, A100, H100 and H200.
@pytest.mark.parametrize(
    ("tensor", "plain", "bandwidth"),
    [(121, 30, 0.3), (125, 31, 0.6), (312, 19.5, 2.0), (989, 67, 3.35), (989, 67, 4.8)],
)
def test_every_gpu_can_be_learnt(tensor: float, plain: float, bandwidth: float, minilm: Backbone, t5: Backbone):
    """What each would be expected to cost is within the bounds of learnt factors."""
    for units in (BackboneUnits(minilm.config), _units(t5, T5_BASE), _units(t5, T5_LARGEST)):
        for dtype, peak, size in ((BFLOAT16, tensor, 2), (torch.float32, plain, 4)):
            own = gpu_priors(units, GpuRates(peak * 1e12 / 4, 0.8e12 * bandwidth, size))
            for expected, prior in zip(own, choose_priors(units, CUDA, dtype), strict=True):
                assert prior / MAX_CHANGE <= expected <= prior * MAX_CHANGE


def test_a_small_pass_on_a_gpu_takes_its_launches(minilm: Backbone):
    """MiniLM: 72 launches of 6 µs, in which an A100 at half of its peak multiplies 33.7e9 pairs: 3,174 tokens."""
    priors = choose_priors(BackboneUnits(minilm.config), CUDA, BFLOAT16)
    assert priors.batch == pytest.approx(72 * 6e-6 * 78e12 / (6 * 1_769_472))


def test_a_step_takes_its_launches_or_reads_the_decoder(t5: Backbone):
    """T5-base has 252 launches; of the largest T5 the weights, in two bytes each, take longer to read."""
    base, largest = _units(t5, T5_BASE), _units(t5, T5_LARGEST)
    assert base.size == 12 * (4 * 768 * 768 + 2 * 768 * 3072)
    assert choose_priors(base, CUDA, BFLOAT16).steps == pytest.approx(252 * 6e-6 * 78e12 / base.size)
    # Without the keys and values of the cross-attention, which are computed with the input.
    read = 24 * (6 * 1024 * 16384 + 2 * 1024 * 65536) + 1024 * 32128
    assert choose_priors(largest, CUDA, BFLOAT16).steps == pytest.approx(2 * read / 1.6e12 * 78e12 / largest.size)


# Measured on AVX2 in float32, int8 and bfloat16: 23, 13 and 19 tokens; 19, 11 and 11; 11 in float32.
@pytest.mark.parametrize(
    ("shape", "measured"),
    [
        ({"hidden_size": 256, "num_heads": 8, "kv_size": 32, "intermediate_size": 704, "vocab_size": 8192,
          "num_layers": 3, "num_decoder_layers": 3, "gated": True}, (23, 13, 19)),
        ({"hidden_size": 512, "num_heads": 8, "kv_size": 64, "intermediate_size": 2048, "vocab_size": 32128,
          "num_layers": 6, "num_decoder_layers": 6, "gated": False}, (19, 11, 11)),
        (T5_BASE, (11,)),
    ],
)  # fmt: skip
def test_a_step_on_a_cpu_is_expected_to_take_what_steps_took(t5, shape, measured):
    """Within a factor of 1.6 of each measurement; the learnt one may differ by four."""
    steps = choose_priors(_units(t5, shape), torch.device("cpu"), torch.float32).steps
    assert all(steps / 1.6 <= one <= steps * 1.6 for one in measured)
