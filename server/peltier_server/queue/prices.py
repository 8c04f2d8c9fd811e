"""The cost of rows in the queue: their estimated time, in tokens of the plain backbone. It is learnt from the measured
times of batches."""

import math
from collections.abc import Iterable, Sequence
from operator import mul
from typing import NamedTuple
from weakref import WeakKeyDictionary

from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Resident
from peltier_adapters.spec.cost import AdapterCost, BackboneCost
from peltier_backbone.checkpoint.config import BackboneConfig


class Work(NamedTuple):
    """The work of rows or of a batch, by kind. The unit is the multiply-adds of one token in the frozen blocks.

    `batch` is 1 for a batch, `tokens` the work in the frozen blocks, `products` the multiply-adds of adapters, `pairs`
    those of attention including prefix keys, `prefixes` the elements of keys and values that are copied for rows with
    a prefix, `weights` the elements that are read once for each adapter of a batch. For a decoding step `steps` is 1
    instead of `batch`.
    """

    batch: float = 0.0
    tokens: float = 0.0
    products: float = 0.0
    pairs: float = 0.0
    prefixes: float = 0.0
    weights: float = 0.0
    steps: float = 0.0


NO_WORK = Work()
# Measured on one core with MiniLM, except `steps`: 25 as for a batch, and more for reading the decoder's weights for
# few rows. The differences of a machine are learnt.
PRIORS = Work(batch=25.0, tokens=1.0, products=1.05, pairs=1.3, prefixes=70.0, weights=17.0, steps=40.0)
# A learnt factor is at most this many times its prior, and at least its prior divided by this.
MAX_CHANGE = 4.0
# The ratio of measured to expected time of a batch is limited to this, and to its inverse.
_MAX_TIME_RATIO = 3.0
# After about 350 more batches, a batch counts half. Each prior counts like one batch with only its kind of work.
_DECAY = 0.998
_PRIOR_BATCHES = 1.0
# The time of a token is an average over about this many seconds of computing. So one slow batch outweighs the average,
# and fast batches lower it step by step.
_RECENT_SECONDS = 0.1
_BATCHES_A_FIT = 32
_SWEEPS = 8


class Estimator:
    """Fits non-negative seconds for each kind of work, by least squares of the relative errors of recent batches.

    `factors` are the costs of a unit of each kind, in tokens. They stay within `MAX_CHANGE` of their priors. A kind
    that the batches do not distinguish from others keeps its prior. One thread observes; any thread may read.

    `seconds_per_token` is the recent time of a token of the plain backbone, for work in tokens by the `factors`. It is
    infinite before the first batch.
    """

    def __init__(self) -> None:
        self.factors = self._scaled = PRIORS
        size = len(PRIORS)
        self._products = [[0.0] * size for _ in range(size)]
        self._targets = [0.0] * size
        self._seconds = self._expected = 0.0
        self._recent_seconds = self._recent_tokens = 0.0
        self.seconds_per_token = math.inf
        self._num_observed = 0

    def observe(self, work: Work, seconds: float) -> None:
        """Learns from a batch with this work and time."""
        self._follow(_dot(work, self.factors), seconds)
        expected = _dot(work, PRIORS)
        self._seconds = _DECAY * self._seconds + seconds
        self._expected = _DECAY * self._expected + expected
        if not (expected > 0 and 0 < self._seconds < float("inf")):
            return
        time_ratio = seconds / expected * self._expected / self._seconds
        share = [amount / expected for amount in work]
        self._add(share, min(max(time_ratio, 1 / _MAX_TIME_RATIO), _MAX_TIME_RATIO))
        self._num_observed += 1
        if self._num_observed % _BATCHES_A_FIT == 0:
            self.factors = self._fit()

    def _follow(self, tokens: float, seconds: float) -> None:
        kept = math.exp(-seconds / _RECENT_SECONDS)
        self._recent_seconds = kept * self._recent_seconds + seconds
        self._recent_tokens = kept * self._recent_tokens + tokens
        if self._recent_tokens:
            self.seconds_per_token = self._recent_seconds / self._recent_tokens

    def _add(self, share: Sequence[float], time_ratio: float) -> None:
        for row, amount in enumerate(share):
            self._targets[row] = _DECAY * self._targets[row] + amount * time_ratio
            self._products[row] = [
                _DECAY * old + amount * other for old, other in zip(self._products[row], share, strict=True)
            ]

    def _fit(self) -> Work:
        """Coordinate descent from the previous solution; the factor of tokens is 1 by definition."""
        factors = list(self._scaled)
        for _ in range(_SWEEPS):
            for kind, prior in enumerate(PRIORS):
                row = self._products[kind]
                others = _dot(row, factors) - row[kind] * factors[kind]
                pull = _PRIOR_BATCHES / prior**2
                best = (self._targets[kind] - others + pull * prior) / (row[kind] + pull)
                factors[kind] = min(max(best, prior / MAX_CHANGE), prior * MAX_CHANGE)
        self._scaled = Work(*factors)
        return Work(
            *(_bounded(factor / self._scaled.tokens, prior) for factor, prior in zip(factors, PRIORS, strict=True))
        )


def _bounded(factor: float, prior: float) -> float:
    return min(max(factor, prior / MAX_CHANGE), prior * MAX_CHANGE)


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    total: float = sum(map(mul, left, right))
    return total


class Price(NamedTuple):
    """The cost of rows with one adapter, in tokens of the plain backbone: `rows` for the first pass of each row without
    the weights of the adapter, `weights` once for each adapter of a batch, `step` for each token of a beam,
    `step_weights` once a step. The rows have `inputs` tokens and score `targets` tokens of label strings each."""

    rows: Sequence[int]
    inputs: Sequence[int]
    targets: int = 0
    weights: int = 0
    step: int = 1
    step_weights: int = 0
    step_work: Work = NO_WORK
    tariff: "_Tariff | None" = None

    @property
    def tokens(self) -> int:
        """The tokens of the first pass of all rows."""
        return sum(self.inputs) + len(self.inputs) * self.targets

    @property
    def work(self) -> Work:
        """The work of the first pass of all rows."""
        inputs = self.inputs
        squares = sum(map(mul, inputs, inputs))
        return NO_WORK if self.tariff is None else self.tariff.work(len(inputs), sum(inputs), squares, self.targets)

    def split(self, count: int) -> tuple["Price", "Price"]:
        """The price of the first `count` rows, and of the others."""
        first, rest = slice(count), slice(count, None)
        return (
            self._replace(rows=self.rows[first], inputs=self.inputs[first]),
            self._replace(rows=self.rows[rest], inputs=self.inputs[rest]),
        )


def price_tokens(rows: Sequence[Row], *, drafted: bool) -> Price:
    """The price of rows that cost their tokens."""
    inputs, targets = [row.num_inputs for row in rows], 0 if drafted else rows[0].num_targets
    return Price([num + targets for num in inputs], inputs, targets)


class _AdapterRates(NamedTuple):
    """Multiply-adds that an adapter adds to one token in the encoder's and in the decoder's blocks without prefixes,
    and those of one token with all keys of a prefix."""

    encoder: int = 0
    decoder: int = 0
    prefix: int = 0


Priced = tuple[Price, Resident | None]


class _BackboneUnits:
    """The work of one token or pair in a backbone, in units of one token in the encoder's blocks."""

    def __init__(self, config: BackboneConfig) -> None:
        cost = BackboneCost.of(config)
        self.num_decoder_layers = config.num_blocks - config.num_layers
        self.decoder_share = self.num_decoder_layers / config.num_blocks
        # Multiply-adds of the unit.
        self.size = sum(cost.blocks[: config.num_layers])
        # The decoder's cross-attention keys and values of an encoder token are computed with that token.
        cross_kv = self.num_decoder_layers * 2 * config.hidden_size * config.attention_size
        self.input = (self.size + cross_kv) / self.size
        self.target = (sum(cost.blocks[config.num_layers :]) - cross_kv + cost.output) / self.size
        # In all layers of the encoder, and in the two attentions of all layers of the decoder.
        self.input_pair = config.num_layers * cost.pair / self.size
        self.target_pair = 2 * self.num_decoder_layers * cost.pair / self.size


class _RowRates(NamedTuple):
    """The cost of a row, for each of its tokens, and for the square of their number, and of the weights of its adapter,
    for these factors and targets."""

    row: float
    token: float
    square: float
    weights: int
    factors: Work
    targets: int


class _Tariff:
    """The prices of rows with one adapter."""

    def __init__(self, units: _BackboneUnits, rates: _AdapterRates, resident: Resident | None) -> None:
        self._units = units
        self._encoder, self._decoder, self._prefix = (rate / units.size for rate in rates)
        head = 0.0 if resident is None else resident.head.cost.row / units.size
        reads_tokens = resident is not None and resident.task.reads_tokens
        self._row_head, self._token_head = (0.0, head) if reads_tokens else (head, 0.0)
        self._weights = 0.0 if resident is None else resident.nbytes / 4 / units.size
        self._rates: _RowRates | None = None

    def work(self, num_rows: int, inputs: int, squares: int, targets: int) -> Work:
        """The work of rows that have `inputs` tokens together and score `targets` tokens of label strings each.
        `squares` is the sum of the squares of their numbers of tokens."""
        units, scored = self._units, num_rows * targets
        return Work(
            tokens=inputs * units.input + scored * units.target,
            products=inputs * (self._encoder + self._token_head) + num_rows * self._row_head + scored * self._decoder,
            pairs=squares * units.input_pair
            + (inputs + scored) * self._prefix
            + targets * (inputs + scored) * units.target_pair,
            prefixes=num_rows * self._prefix,
            weights=self._weights,
        )

    def of_rows(self, factors: Work, inputs: Sequence[int], targets: int = 0) -> Price:
        """The price of rows of `inputs` tokens each, which score `targets` tokens of label strings each."""
        rates = self._rates
        if rates is None or rates.factors is not factors or rates.targets != targets:
            rates = self._rates = self._measure(factors, targets)
        row, token, square, weights, *_ = rates
        costs = [max(1, num + targets, round(row + num * (token + num * square))) for num in inputs]
        return Price(costs, inputs, targets, weights, tariff=self)

    def _measure(self, factors: Work, targets: int) -> _RowRates:
        # The work is linear in these three numbers.
        row, token, square = (_cost(self.work(*one, targets), factors) for one in ((1, 0, 0), (0, 1, 0), (0, 0, 1)))
        return _RowRates(row, token, square, round(self._weights * factors.weights), factors, targets)

    def of_text(self, factors: Work, inputs: int) -> Price:
        """The price of a text whose input has `inputs` tokens. It assumes that the decoder's share of the weights is
        its share of the blocks, and does not count the text's own keys."""
        units, first = self._units, self.of_rows(factors, [inputs])
        pairs = inputs * units.target_pair + self._prefix
        weights = self._weights * units.decoder_share
        cost = units.target * factors.tokens + self._decoder * factors.products + pairs * factors.pairs
        return first._replace(
            step=max(1, round(cost)),
            step_weights=round(weights * factors.weights),
            step_work=Work(tokens=units.target, products=self._decoder, pairs=pairs, weights=weights),
        )


class Prices:
    """Prices rows by their work and their adapters' work, with times learnt from batches.

    A row costs at least its tokens. One thread calls `observe`; any thread may ask for a price.
    """

    def __init__(self, config: BackboneConfig) -> None:
        self._num_layers = config.num_layers
        self._units = _BackboneUnits(config)
        self._estimator = Estimator()
        self._plain = _Tariff(self._units, _AdapterRates(), None)
        self._tariffs: WeakKeyDictionary[Resident, _Tariff] = WeakKeyDictionary()

    @property
    def factors(self) -> Work:
        """The current cost of a unit of each kind of work."""
        return self._estimator.factors

    @property
    def seconds_per_token(self) -> float:
        """The recent time of a token of the plain backbone; infinite before the first batch."""
        return self._estimator.seconds_per_token

    def price(self, rows: Sequence[Row], *, drafted: bool = False) -> Price:
        """The price of rows with the same adapter and label strings, including scoring these, or of one text that is
        `drafted`."""
        tariff, factors = self._tariff(rows[0]), self._estimator.factors
        if drafted:
            return tariff.of_text(factors, rows[0].num_inputs)
        # The adapter's prompt has the same length for all.
        num_soft = rows[0].num_inputs - len(rows[0].encoded.ids)
        inputs = [num_soft + len(row.encoded.ids) for row in rows]
        return tariff.of_rows(factors, inputs, rows[0].num_targets)

    def observe(self, prices: Iterable[Priced], seconds: float, *, computed: float = 1.0) -> None:
        """Learns from the time of a batch of rows, each with its adapter, or of the first pass of texts. `computed` is
        the part of the work in the frozen blocks that was done: rows of one text share some, but each is charged."""
        total = _total(Work(batch=1.0), [(price.work, resident) for price, resident in prices])
        done = total._replace(tokens=total.tokens * computed, pairs=total.pairs * computed)
        self._estimator.observe(done, seconds)

    def observe_step(self, prices: Iterable[Priced], seconds: float) -> None:
        """Learns from the time of one step of rows; a text has one row for each beam."""
        works = [(price.step_work, resident) for price, resident in prices]
        self._estimator.observe(_total(Work(steps=1.0), works), seconds)

    def _tariff(self, row: Row) -> _Tariff:
        """The prices of the rows with the same adapter, which are created once."""
        resident = row.resident
        if resident is None:
            return self._plain
        if row.bare:
            return _Tariff(self._units, _AdapterRates(), resident)
        tariff = self._tariffs.get(resident)
        if tariff is None:
            rates = _split(resident.body.cost, self._num_layers)
            tariff = self._tariffs[resident] = _Tariff(self._units, rates, resident)
        return tariff


def _cost(work: Work, factors: Work) -> float:
    """The cost of the work of rows, without the weights of their adapter."""
    cost: float = sum(map(mul, work._replace(weights=0.0), factors))
    return cost


def _total(fixed: Work, works: Iterable[tuple[Work, Resident | None]]) -> Work:
    """The work of rows that are computed together, with each adapter's weights counted once."""
    works = list(works)
    weights = {resident: work.weights for work, resident in works}
    summed = Work(*map(sum, zip(fixed, *(work for work, _ in works), strict=True)))
    return summed._replace(weights=sum(weights.values()))


def _split(cost: AdapterCost, num_layers: int) -> _AdapterRates:
    encoder = decoder = prefix = 0
    for part in cost.parts:
        if part.kind == "prefix":
            prefix += sum(part.blocks)
        else:
            encoder += sum(part.blocks[:num_layers])
            decoder += sum(part.blocks[num_layers:])
    return _AdapterRates(encoder, decoder, prefix)
