"""The cost of rows in the queue: their estimated time, in tokens of the plain backbone. It is learnt from the measured
times of batches."""

import math
from collections.abc import Hashable, Iterable, Sequence
from operator import add, mul
from typing import NamedTuple
from weakref import WeakKeyDictionary

from peltier_adapters.batch.choice import choose_runner
from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Resident
from peltier_adapters.spec.cost import AdapterCost
from peltier_backbone.backbone import Backbone

from peltier_server.queue.priors import NO_WORK, BackboneUnits, Work, choose_priors

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

    def __init__(self, priors: Work) -> None:
        self._priors = self.factors = self._scaled = priors
        size = len(priors)
        self._products = [[0.0] * size for _ in range(size)]
        self._targets = [0.0] * size
        self._seconds = self._expected = 0.0
        self._recent_seconds = self._recent_tokens = 0.0
        self.seconds_per_token = math.inf
        self._num_observed = 0

    def observe(self, work: Work, seconds: float) -> None:
        """Learns from a batch with this work and time."""
        self._follow(_dot(work, self.factors), seconds)
        expected = _dot(work, self._priors)
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
            for kind, prior in enumerate(self._priors):
                row = self._products[kind]
                others = _dot(row, factors) - row[kind] * factors[kind]
                pull = _PRIOR_BATCHES / prior**2
                best = (self._targets[kind] - others + pull * prior) / (row[kind] + pull)
                factors[kind] = min(max(best, prior / MAX_CHANGE), prior * MAX_CHANGE)
        self._scaled = Work(*factors)
        return Work(
            *(
                _bounded(factor / self._scaled.tokens, prior)
                for factor, prior in zip(factors, self._priors, strict=True)
            )
        )


def _bounded(factor: float, prior: float) -> float:
    return min(max(factor, prior / MAX_CHANGE), prior * MAX_CHANGE)


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    total: float = sum(map(mul, left, right))
    return total


class Shared(NamedTuple):
    """What a pass need not compute of rows, as it computes it for other rows of the same texts: `tokens` are the sum of
    their tokens times their shared blocks, `squares` the same of the squares of their numbers of tokens."""

    tokens: int = 0
    squares: int = 0

    def with_row(self, inputs: int, num_blocks: int) -> "Shared":
        """The same with so many blocks of a row of `inputs` tokens."""
        tokens = inputs * num_blocks
        return Shared(self.tokens + tokens, self.squares + inputs * tokens)


NOTHING_SHARED = Shared()


class SharedBlocks:
    """The blocks that a pass computes of texts, in which no adapter acts. Rows of one text share them: each row leaves
    the first `depth` blocks alone, and these are computed once, up to the largest depth (`plan_stages`)."""

    def __init__(self) -> None:
        self._depths: dict[Hashable, int] = {}

    def of(self, row: Row, depth: int) -> int:
        """How many blocks the pass computes anyway for a row that leaves the first `depth` alone."""
        return min(depth, self._depths.get(row.shared_key, 0)) if depth and self._depths else 0

    def add(self, row: Row, depth: int) -> None:
        """The pass computes this row too."""
        if depth and (key := row.shared_key) is not None:
            self._depths[key] = max(depth, self._depths.get(key, 0))


class Price(NamedTuple):
    """The cost of rows with one adapter, in tokens of the plain backbone: `rows` for the first pass of each row without
    the weights of the adapter, `weights` once for each adapter of a batch, `step` for each token of a beam,
    `step_weights` once a step. The rows have `inputs` tokens and score `targets` tokens of label strings each.

    A row costs `rows` if it shares nothing, and less if it shares some of its first `depth` blocks. `shared` is what
    the first rows, as many as a batch has taken, share in it."""

    rows: Sequence[int]
    inputs: Sequence[int]
    targets: int = 0
    weights: int = 0
    step: int = 1
    step_weights: int = 0
    step_work: Work = NO_WORK
    tariff: "_Tariff | None" = None
    factors: Work = NO_WORK
    depth: int = 0
    shared: Shared = NOTHING_SHARED

    def row(self, number: int, num_shared: int) -> int:
        """The cost of a row that shares so many blocks."""
        if not num_shared or self.tariff is None:
            return self.rows[number]
        saved = self.tariff.work_of(Shared().with_row(self.inputs[number], num_shared))
        return max(1, self.rows[number] - round(_cost(saved, self.factors)))

    def sharing(self, number: int, num_shared: int) -> "Price":
        """The price with a row that shares so many blocks in the batch that has taken it."""
        return self._replace(shared=self.shared.with_row(self.inputs[number], num_shared))

    @property
    def tokens(self) -> int:
        """The tokens of the first pass of all rows."""
        return sum(self.inputs) + len(self.inputs) * self.targets

    @property
    def work(self) -> Work:
        """The work of the first pass of all rows, without what they share."""
        inputs, tariff = self.inputs, self.tariff
        if tariff is None:
            return NO_WORK
        work = tariff.work(len(inputs), sum(inputs), sum(map(mul, inputs, inputs)), self.targets)
        if self.shared is NOTHING_SHARED:
            return work
        part = tariff.work_of(self.shared)
        return work._replace(tokens=work.tokens - part.tokens, pairs=work.pairs - part.pairs)

    def split(self, count: int) -> tuple["Price", "Price"]:
        """The price of the first `count` rows, which a batch has taken, and of the others."""
        first, rest = slice(count), slice(count, None)
        return (
            self._replace(rows=self.rows[first], inputs=self.inputs[first]),
            self._replace(rows=self.rows[rest], inputs=self.inputs[rest], shared=NOTHING_SHARED),
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

    def __init__(self, units: BackboneUnits, rates: _AdapterRates, resident: Resident | None, depth: int) -> None:
        self._units, self._depth = units, depth
        self._encoder, self._decoder, self._prefix = (rate / units.size for rate in rates)
        head = 0.0 if resident is None else resident.head.cost.row / units.size
        by_token = resident is not None and resident.task.has_token_head
        self._row_head, self._token_head = (0.0, head) if by_token else (head, 0.0)
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
        return Price(costs, inputs, targets, weights, tariff=self, factors=factors, depth=self._depth)

    def work_of(self, shared: Shared) -> Work:
        """The work in blocks that rows share."""
        units = self._units
        tokens, pairs = shared.tokens * units.input, shared.squares * units.input_pair
        return Work(tokens=tokens / units.num_layers, pairs=pairs / units.num_layers)

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
    """Prices rows of `backbone` by their work and their adapters' work, with times learnt from batches.

    A row that shares nothing costs at least its tokens. One thread calls `observe`; any thread may ask for a price.
    """

    def __init__(self, backbone: Backbone) -> None:
        self._units = BackboneUnits(backbone.config)
        self._shares_blocks = choose_runner(backbone).shares_blocks
        self._estimator = Estimator(choose_priors(self._units, backbone.device, backbone.dtype))
        self._plain = _Tariff(self._units, _AdapterRates(), None, self._depth(None))
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

    def observe(self, prices: Iterable[Priced], seconds: float) -> None:
        """Learns from the time of a batch of rows, each with its adapter."""
        self._estimator.observe(_first_pass(prices), seconds)

    def observe_step(self, prices: Iterable[Priced], seconds: float, *, joined: Iterable[Priced] = ()) -> None:
        """Learns from the time of one step of rows; a text has one row for each beam. The time includes the first pass
        of the texts that have `joined`."""
        step = _total(Work(steps=1.0), [(price.step_work, resident) for price, resident in prices])
        if joined := list(joined):
            step = Work(*map(add, step, _first_pass(joined)))
        self._estimator.observe(step, seconds)

    def _tariff(self, row: Row) -> _Tariff:
        """The prices of the rows with the same adapter, which are created once."""
        resident = row.resident
        if resident is None:
            return self._plain
        if row.bare:
            return _Tariff(self._units, _AdapterRates(), resident, self._depth(None))
        tariff = self._tariffs.get(resident)
        if tariff is None:
            rates = _split(resident.body.cost, self._units.num_layers)
            tariff = self._tariffs[resident] = _Tariff(self._units, rates, resident, self._depth(resident))
        return tariff

    def _depth(self, resident: Resident | None) -> int:
        """The first blocks that rows of this adapter share with others of their text."""
        if not self._shares_blocks:
            return 0
        return self._units.num_layers if resident is None else max(resident.body.first_block, 0)


def _cost(work: Work, factors: Work) -> float:
    """The cost of the work of rows, without the weights of their adapter."""
    cost: float = sum(map(mul, work._replace(weights=0.0), factors))
    return cost


def _first_pass(prices: Iterable[Priced]) -> Work:
    return _total(Work(batch=1.0), [(price.work, resident) for price, resident in prices])


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
