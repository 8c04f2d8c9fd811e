"""The cost of rows in the queue: their estimated time, in tokens of the plain backbone."""

from collections.abc import Iterable
from typing import NamedTuple
from weakref import WeakKeyDictionary

from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Resident
from peltier_adapters.spec.cost import AdapterCost, BackboneCost
from peltier_backbone.config import BackboneConfig

from peltier_server.queue.estimator import NO_WORK, Estimator, Work


class Price(NamedTuple):
    """The cost of a ticket, in tokens of the plain backbone: `first` for its first pass without the weights of its
    adapter, `weights` once for each adapter of a batch, `step` for each token of a beam, `step_weights` once a step."""

    first: int
    weights: int = 0
    step: int = 1
    step_weights: int = 0
    work: Work = NO_WORK
    step_work: Work = NO_WORK


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


class _Tariff:
    """The prices of rows with one adapter."""

    def __init__(self, units: _BackboneUnits, rates: _AdapterRates, resident: Resident | None) -> None:
        self._units = units
        self._encoder, self._decoder, self._prefix = (rate / units.size for rate in rates)
        self._head = 0.0 if resident is None else resident.head.cost.row / units.size
        self._weights = 0.0 if resident is None else resident.nbytes / 4 / units.size

    def of_row(self, factors: Work, inputs: int, targets: int = 0) -> Price:
        """The price of a row of `inputs` tokens that scores `targets` tokens of label strings."""
        units = self._units
        tokens, products = inputs * units.input, inputs * self._encoder + self._head
        pairs = inputs * inputs * units.input_pair + (inputs + targets) * self._prefix
        if targets:
            tokens += targets * units.target
            products += targets * self._decoder
            pairs += targets * (inputs + targets) * units.target_pair
        cost = (
            tokens * factors.tokens
            + products * factors.products
            + pairs * factors.pairs
            + self._prefix * factors.prefixes
        )
        work = Work(0.0, tokens, products, pairs, self._prefix, self._weights)
        return Price(max(1, inputs + targets, round(cost)), round(self._weights * factors.weights), work=work)

    def of_text(self, factors: Work, inputs: int) -> Price:
        """The price of a text whose input has `inputs` tokens. It assumes that the decoder's share of the weights is
        its share of the blocks, and does not count the text's own keys."""
        units, first = self._units, self.of_row(factors, inputs)
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
        """The current time of a token of the plain backbone; 0 before the first batch."""
        return self._estimator.seconds_per_token

    def price(self, row: Row, *, drafted: bool = False) -> Price:
        """The price of a row, including scoring its label strings, or of a text that is `drafted`."""
        tariff, factors = self._tariff(row), self._estimator.factors
        if drafted:
            return tariff.of_text(factors, row.num_inputs)
        return tariff.of_row(factors, row.num_inputs, row.num_targets)

    def observe(self, prices: Iterable[Priced], seconds: float) -> None:
        """Learns from the time of a batch of rows, each with its adapter, or of the first pass of texts."""
        works = [(price.work, resident) for price, resident in prices]
        self._estimator.observe(_total(Work(batch=1.0), works), seconds)

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
