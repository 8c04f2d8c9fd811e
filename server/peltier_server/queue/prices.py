"""What rows cost in the queue: estimated time, in tokens of the plain backbone."""

from collections.abc import Iterable
from dataclasses import dataclass

from peltier_adapters.bank import Resident
from peltier_adapters.cost import AdapterCost, BackboneCost
from peltier_adapters.row import Row
from peltier_backbone.config import BackboneConfig

from peltier_server.queue.estimator import NO_WORK, Estimator, Work


@dataclass(frozen=True, slots=True)
class Price:
    """Whole tokens of the plain backbone that take as long: a ticket's first pass without the weights of its adapter,
    those weights, once for each adapter of a batch, and each token that a beam writes."""

    first: int
    weights: int = 0
    step: int = 1
    work: Work = NO_WORK
    weights_work: float = 0.0


class Prices:
    """Prices rows by what they and their adapters make the device do, as batches have shown how long that takes.

    A row costs at least its tokens. `observe` belongs to one thread; any may ask for a price.
    """

    def __init__(self, config: BackboneConfig) -> None:
        self._config = config
        self._backbone = BackboneCost.of(config)
        self._encoder = sum(self._backbone.blocks[: config.num_layers])
        decoder = sum(self._backbone.blocks[config.num_layers :])
        # The keys and values that a decoder reads of an encoder's token are computed with that token.
        num_decoder_layers = config.num_blocks - config.num_layers
        self._remembered = num_decoder_layers * 2 * config.hidden_size * config.attention_size
        self._decoder = decoder - self._remembered + self._backbone.output
        self._estimator = Estimator()

    @property
    def factors(self) -> Work:
        """What a unit of each kind of work costs now."""
        return self._estimator.factors

    @property
    def seconds_per_token(self) -> float:
        """What a token of the plain backbone takes now; 0 before a batch has been observed."""
        return self._estimator.seconds_per_token

    def price(self, row: Row, *, drafted: bool = False) -> Price:
        """Of a row whose label strings are scored, if it has any, or of a text that is `drafted`."""
        targets = 0 if drafted or row.scored is None else len(row.scored.ids)
        work, weights = self._work(row, targets), self._weights(row.resident)
        step = self._step(row) if drafted else 1
        factors = self.factors
        floor = len(row.prompted) if drafted else row.num_tokens
        first = max(1, floor, round(_cost(work, factors)))
        return Price(first, round(weights * factors.weights), step, work, weights)

    def observe(self, prices: Iterable[tuple[Price, Resident | None]], seconds: float) -> None:
        """A batch of such rows, each with its adapter, has been computed in so many seconds."""
        works, weights = [Work(batch=1.0)], dict[Resident, float]()
        for price, resident in prices:
            works.append(price.work)
            if resident is not None:
                weights[resident] = price.weights_work
        total = Work(*map(sum, zip(*works, strict=True)))
        self._estimator.observe(total._replace(weights=sum(weights.values())), seconds)

    def _work(self, row: Row, targets: int) -> Work:
        """In units of one token in the encoder's blocks."""
        unit, pair, num_layers = self._encoder, self._backbone.pair, self._config.num_layers
        tokens = len(row.prompted)
        cost, head = _costs(row)
        encoder, decoder, prefix = _split(cost, num_layers)
        own = tokens * encoder + targets * decoder + head
        pairs = tokens * tokens * num_layers + 2 * targets * (tokens + targets) * self._num_decoder_layers
        prefixes = prefix * (tokens + targets)
        return Work(
            tokens=(tokens * (unit + self._remembered) + targets * self._decoder) / unit,
            products=own / unit,
            pairs=(pairs * pair + prefixes) / unit,
            prefixes=prefix / unit,
        )

    def _step(self, row: Row) -> int:
        """One token of a text that reads `row`."""
        unit, tokens = self._encoder, len(row.prompted)
        cost, _ = _costs(row)
        _, decoder, prefix = _split(cost, self._config.num_layers)
        pairs = 2 * tokens * self._num_decoder_layers * self._backbone.pair + prefix
        work = Work(tokens=self._decoder / unit, products=decoder / unit, pairs=pairs / unit)
        return max(1, round(_cost(work, self.factors)))

    @property
    def _num_decoder_layers(self) -> int:
        return self._config.num_blocks - self._config.num_layers

    def _weights(self, resident: Resident | None) -> float:
        return 0.0 if resident is None else resident.nbytes / 4 / self._encoder


def _cost(work: Work, factors: Work) -> float:
    return sum(one * factor for one, factor in zip(work, factors, strict=True))


def _costs(row: Row) -> tuple[AdapterCost | None, int]:
    """Of the adapter inside the backbone, and the multiply-adds of its head."""
    head = 0 if row.resident is None else row.resident.head.cost.row
    return (None if row.body is None else row.body.cost), head


def _split(cost: AdapterCost | None, num_layers: int) -> tuple[int, int, int]:
    """Multiply-adds of one token in an encoder's blocks and in a decoder's, without prefixes; and those with all of a
    prefix's keys."""
    encoder = decoder = prefix = 0
    for part in () if cost is None else cost.parts:
        if part.kind == "prefix":
            prefix += sum(part.blocks)
        else:
            encoder += sum(part.blocks[:num_layers])
            decoder += sum(part.blocks[num_layers:])
    return encoder, decoder, prefix
