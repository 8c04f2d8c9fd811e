"""Estimates learnt from measured batches, which no input can make absurd."""

import math
import random

from hypothesis import given
from hypothesis import strategies as st
from peltier_server.queue.estimator import MAX_CHANGE, PRIORS, Estimator, Work

TRUE = Work(batch=40.0, tokens=1.0, products=2.0, pairs=2.6, prefixes=35.0, weights=40.0, steps=60.0)
AMOUNTS = st.one_of(st.just(0.0), st.floats(0, 1e6))
BATCHES = st.lists(
    st.tuples(st.builds(Work, st.just(1.0), *(AMOUNTS for _ in PRIORS[1:])), st.floats(0, 1e6)), max_size=30
)


def _draw(draw: random.Random) -> Work:
    tokens = draw.uniform(3, 2000)
    products, pairs, prefixes, weights = (draw.choice((0, draw.random())) for _ in range(4))
    batch = draw.choice((0.0, 1.0))
    return Work(batch, tokens, tokens * products, tokens * pairs, 0.02 * tokens * prefixes, 60 * weights, 1 - batch)


def test_it_starts_with_the_priors():
    """Until something is measured."""
    assert Estimator().factors == PRIORS


def test_it_learns_what_a_machine_takes():
    """Each kind by itself, within a sixth of what it takes, from batches of mixed work with a tenth of noise."""
    estimator, draw = Estimator(), random.Random(0)
    for _ in range(800):
        work = _draw(draw)
        seconds = 2e-4 * sum(one * factor for one, factor in zip(work, TRUE, strict=True))
        estimator.observe(work, seconds * draw.uniform(0.9, 1.1))
    found = estimator.factors
    assert all(abs(one / true - 1) < 1 / 6 for one, true in zip(found[1:], TRUE[1:], strict=True))


def test_it_knows_how_long_a_token_takes():
    """On this machine, within a tenth; it expects forever before the first batch."""
    estimator, draw = Estimator(), random.Random(0)
    assert estimator.seconds_per_token == math.inf
    for _ in range(800):
        work = _draw(draw)
        estimator.observe(work, 3e-4 * sum(one * factor for one, factor in zip(work, TRUE, strict=True)))
    assert abs(estimator.seconds_per_token / 3e-4 - 1) < 0.1


def test_one_slow_batch_makes_tokens_slow_at_once():
    """It outweighs the batches before; after a stall the former time of a token returns in half a second of batches."""
    estimator, work = Estimator(), Work(batch=1.0, tokens=475.0)
    for _ in range(1000):
        estimator.observe(work, 0.05)
    estimator.observe(work, 0.5)
    assert estimator.seconds_per_token > 9e-4
    for _ in range(10):
        estimator.observe(work, 0.05)
    assert estimator.seconds_per_token < 1.1e-4


def test_batches_of_one_kind_teach_nothing_of_the_others():
    """Plain rows alone leave every price of an adapter as it was, but for the ridge's own pull."""
    estimator, draw = Estimator(), random.Random(0)
    for _ in range(200):
        tokens = draw.uniform(3, 2000)
        estimator.observe(Work(batch=1.0, tokens=tokens), 1e-4 * (25 + tokens))
    found = estimator.factors
    assert all(abs(one / prior - 1) < 0.1 for one, prior in zip(found, PRIORS, strict=True))


def test_steps_teach_nothing_of_what_a_batch_costs():
    """Fixed costs of a decoding step do not change the price of a batch."""
    estimator, draw = Estimator(), random.Random(0)
    for _ in range(200):
        tokens = draw.uniform(3, 200)
        estimator.observe(Work(tokens=tokens, steps=1.0), 1e-4 * (100 + tokens))
    assert estimator.factors.steps > 1.5 * PRIORS.steps
    assert estimator._scaled.batch == PRIORS.batch


@given(batches=BATCHES)
def test_whatever_is_measured_prices_stay_near_their_priors(batches: list[tuple[Work, float]]):
    """Finite, positive, within the stated factor, and a token is a token."""
    estimator = Estimator()
    for work, seconds in batches:
        estimator.observe(work, seconds)
    for factor, prior in zip(estimator.factors, PRIORS, strict=True):
        assert math.isfinite(factor)
        assert prior / MAX_CHANGE <= factor <= prior * MAX_CHANGE
    assert estimator.factors.tokens == 1


def test_one_slow_batch_changes_little():
    """A pause of a second in the middle of batches of milliseconds."""
    estimator, draw = Estimator(), random.Random(0)
    for _ in range(100):
        work = _draw(draw)
        estimator.observe(work, 1e-4 * sum(one * prior for one, prior in zip(work, PRIORS, strict=True)))
    before = estimator.factors
    estimator.observe(_draw(draw), 1.0)
    assert all(abs(one / other - 1) < 0.2 for one, other in zip(estimator.factors, before, strict=True))
