"""The cost of rows in the queue: their estimated time, in tokens of the plain backbone."""

from collections.abc import Iterable
from dataclasses import dataclass

from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Resident
from peltier_adapters.spec.cost import AdapterCost, BackboneCost
from peltier_backbone.config import BackboneConfig

from peltier_server.queue.estimator import NO_WORK, Estimator, Work


@dataclass(frozen=True, slots=True)
class Price:
    """The cost of a ticket, in tokens of the plain backbone: `first` for its first pass without the weights of its
    adapter, `weights` once for each adapter of a batch, `step` for each token of a beam, `step_weights` once a step."""

    first: int
    weights: int = 0
    step: int = 1
    step_weights: int = 0
    work: Work = NO_WORK
    step_work: Work = NO_WORK


Priced = tuple[Price, Resident | None]


class Prices:
    """Prices rows by their work and their adapters' work, with times learnt from batches.

    A row costs at least its tokens. One thread calls `observe`; any thread may ask for a price.
    """

    def __init__(self, config: BackboneConfig) -> None:
        self._config = config
        self._backbone = BackboneCost.of(config)
        self._encoder = sum(self._backbone.blocks[: config.num_layers])
        decoder = sum(self._backbone.blocks[config.num_layers :])
        # The decoder's cross-attention keys and values of an encoder token are computed with that token.
        num_decoder_layers = config.num_blocks - config.num_layers
        self._cross_kv = num_decoder_layers * 2 * config.hidden_size * config.attention_size
        self._decoder = decoder - self._cross_kv + self._backbone.output
        self._estimator = Estimator()

    @property
    def factors(self) -> Work:
        """The current cost of a unit of each kind of work."""
        return self._estimator.factors

    @property
    def seconds_per_token(self) -> float:
        """The current time of a token of the plain backbone; 0 before the first batch."""
        return self._estimator.seconds_per_token

    def price(self, row: Row, *, drafted: bool = False) -> Price:
        """The price of a row, including scoring its label strings, or of a text that is `drafted`."""
        targets = 0 if drafted or row.scored is None else len(row.scored.ids)
        work = self._work(row, targets)._replace(weights=self._weights(row.resident))
        step_work = self._step(row, work.weights) if drafted else NO_WORK
        factors = self.factors
        row_work = work._replace(weights=0.0)
        step = max(1, round(_cost(step_work._replace(weights=0.0), factors)))
        floor = len(row.prompted) if drafted else row.num_tokens
        first = max(1, floor, round(_cost(row_work, factors)))
        weights, step_weights = (round(part.weights * factors.weights) for part in (work, step_work))
        return Price(first, weights, step, step_weights, work, step_work)

    def observe(self, prices: Iterable[Priced], seconds: float) -> None:
        """Learns from the time of a batch of rows, each with its adapter, or of the first pass of texts."""
        works = [(price.work, resident) for price, resident in prices]
        self._estimator.observe(_total(Work(batch=1.0), works), seconds)

    def observe_step(self, prices: Iterable[Priced], seconds: float) -> None:
        """Learns from the time of one step of rows; a text has one row for each beam."""
        works = [(price.step_work, resident) for price, resident in prices]
        self._estimator.observe(_total(Work(steps=1.0), works), seconds)

    def _work(self, row: Row, targets: int) -> Work:
        """The work of a row's first pass, in units of one token in the encoder's blocks."""
        unit, pair, num_layers = self._encoder, self._backbone.pair, self._config.num_layers
        tokens = len(row.prompted)
        cost, head = _costs(row)
        encoder, decoder, prefix = _split(cost, num_layers)
        own = tokens * encoder + targets * decoder + head
        pairs = tokens * tokens * num_layers + 2 * targets * (tokens + targets) * self._num_decoder_layers
        prefixes = prefix * (tokens + targets)
        return Work(
            tokens=(tokens * (unit + self._cross_kv) + targets * self._decoder) / unit,
            products=own / unit,
            pairs=(pairs * pair + prefixes) / unit,
            prefixes=prefix / unit,
        )

    def _step(self, row: Row, weights: float) -> Work:
        """The work of one token of a text whose input is `row`; its adapter has `weights`. Assumes that the decoder's
        share of the weights is its share of the blocks, and does not count the text's own keys."""
        unit, tokens = self._encoder, len(row.prompted)
        cost, _ = _costs(row)
        _, decoder, prefix = _split(cost, self._config.num_layers)
        pairs = 2 * tokens * self._num_decoder_layers * self._backbone.pair + prefix
        weights *= self._num_decoder_layers / self._config.num_blocks
        return Work(tokens=self._decoder / unit, products=decoder / unit, pairs=pairs / unit, weights=weights)

    @property
    def _num_decoder_layers(self) -> int:
        return self._config.num_blocks - self._config.num_layers

    def _weights(self, resident: Resident | None) -> float:
        return 0.0 if resident is None else resident.nbytes / 4 / self._encoder


def _total(fixed: Work, works: Iterable[tuple[Work, Resident | None]]) -> Work:
    """The work of rows that are computed together, with each adapter's weights counted once."""
    summed, weights = list(fixed), dict[Resident | None, float]()
    for work, resident in works:
        summed = [total + amount for total, amount in zip(summed, work, strict=True)]
        weights[resident] = work.weights
    return Work(*summed)._replace(weights=sum(weights.values()))


def _cost(work: Work, factors: Work) -> float:
    return sum(amount * factor for amount, factor in zip(work, factors, strict=True))


def _costs(row: Row) -> tuple[AdapterCost | None, int]:
    """The cost of the row's adapter inside the backbone, and the multiply-adds of its head."""
    head = 0 if row.resident is None else row.resident.head.cost.row
    return (None if row.body is None else row.body.cost), head


def _split(cost: AdapterCost | None, num_layers: int) -> tuple[int, int, int]:
    """Multiply-adds of one token in the encoder's and in the decoder's blocks without prefixes, and those with all keys
    of a prefix."""
    encoder = decoder = prefix = 0
    for part in () if cost is None else cost.parts:
        if part.kind == "prefix":
            prefix += sum(part.blocks)
        else:
            encoder += sum(part.blocks[:num_layers])
            decoder += sum(part.blocks[num_layers:])
    return encoder, decoder, prefix
