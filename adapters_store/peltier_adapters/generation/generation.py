"""Continuous decoding with T5: texts of any tenants, methods and lengths join and leave the batch between two steps."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.cache import Cache
from peltier_backbone.decoding.likeliest import find_likeliest
from torch import Tensor

from peltier_adapters.batch import choice
from peltier_adapters.batch.row import Row
from peltier_adapters.batch.runner import Steps
from peltier_adapters.generation.search import Beams, Decoding, FinishReason, Line, create_search


@dataclass(eq=False)
class Draft:
    """One text during generation. If the model's output is not finite, `failed` is set and `finish` stays None."""

    row: Row
    decoding: Decoding
    search: Line | Beams
    slots: list[int] = field(default_factory=list)
    failed: bool = False

    @property
    def ids(self) -> list[int]:
        """The tokens of the text so far, without start and end tokens. A beam search may change them until its end."""
        return self.search.ids

    @property
    def finish(self) -> FinishReason | None:
        """`stop` after the end token, `length` after `max_new_tokens`, None before."""
        return self.search.finish

    @property
    def done(self) -> bool:
        """Whether the draft has finished or failed."""
        return self.failed or self.finish is not None

    @property
    def score(self) -> float:
        """Geometric mean of the probabilities of the tokens, including the end token."""
        num_steps = len(self.ids) + (self.finish == "stop")
        return math.exp(self.search.log_prob / num_steps) if num_steps else 1.0


def create_draft(backbone: Backbone, row: Row, decoding: Decoding) -> Draft:
    """A draft without tokens."""
    config = backbone.t5.config
    return Draft(row, decoding, create_search(decoding, config.start_token_id, config.eos_token_id))


class Generator:
    """Decodes drafts together. A draft gets the same text as alone. Use it from one thread at a time."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self._cache = Cache(backbone.t5.config, backbone.device, backbone.kept_dtype)
        self._live: list[Draft] = []
        self._steps: Steps | None = None

    @property
    def live(self) -> Sequence[Draft]:
        """The drafts of the next step."""
        return tuple(self._live)

    @property
    def num_rows(self) -> int:
        """The number of rows of the next step; a draft has one row per beam."""
        return sum(draft.decoding.num_beams for draft in self._live)

    @torch.inference_mode()
    def join(self, drafts: Sequence[Draft]) -> None:
        """Encode the inputs of `drafts` in one pass. The next step includes these drafts."""
        if not drafts:
            return
        arriving = sorted(drafts, key=lambda draft: draft.row.order)
        copies = [draft.decoding.num_beams for draft in arriving]
        self._steps = None  # the cache may move, even if this fails
        slots = choice.choose_runner(self._backbone).join([draft.row for draft in arriving], copies, self._cache)
        for draft, own in zip(arriving, slots, strict=True):
            draft.slots = own
        self._live = sorted([*self._live, *arriving], key=lambda draft: draft.row.order)

    def drop(self, drafts: Iterable[Draft]) -> None:
        """Remove drafts and free their slots."""
        gone = set(drafts)
        leaving = [draft for draft in self._live if draft in gone]
        if leaving:
            self._cache.leave([slot for draft in leaving for slot in draft.slots])
            self._live = [draft for draft in self._live if draft not in gone]
            self._steps = None

    @torch.inference_mode()
    def step(self) -> list[Draft]:
        """Generate one token for each live draft. Returns these drafts and removes those that are done."""
        stepped = list(self._live)
        if not stepped:
            return []
        if self._steps is None:
            self._steps = self._arrange()
        tokens = [token for draft in stepped for token in draft.search.tokens]
        self._advance(stepped, self._steps(tokens).float())
        self.drop([draft for draft in stepped if draft.done])
        return stepped

    def _arrange(self) -> Steps:
        rows = [draft.row for draft in self._live for _ in draft.slots]
        slots = [slot for draft in self._live for slot in draft.slots]
        return choice.choose_runner(self._backbone).arrange(rows, slots, self._cache)

    def _advance(self, drafts: Sequence[Draft], logits: Tensor) -> None:
        chosen = find_likeliest(logits).read()
        searching: list[tuple[Draft, slice]] = []
        start = 0
        for draft in drafts:
            first, start = start, start + draft.decoding.num_beams
            if not all(math.isfinite(log_prob) for _, log_prob in chosen[first:start]):
                draft.failed = True
            elif isinstance(draft.search, Line) and draft.search.greedy:
                draft.search.append(*chosen[first])
            else:
                searching.append((draft, slice(first, start)))
        if searching:
            self._search(searching, logits)

    def _search(self, searching: Sequence[tuple[Draft, slice]], logits: Tensor) -> None:
        """Advance drafts that need all log-probabilities of their rows, with one copy from the device for all."""
        log_probs = torch.cat([logits[rows] for _, rows in searching]).log_softmax(-1).cpu()
        slots, origins = list[int](), list[int]()
        pieces = torch.split(log_probs, [len(draft.slots) for draft, _ in searching])
        for (draft, _), own in zip(searching, pieces, strict=True):
            sources = draft.search.advance(own)
            if sources is not None and sources != list(range(len(sources))):
                slots += draft.slots
                origins += [draft.slots[source] for source in sources]
        if slots:
            self._cache.reorder(slots, origins)


def generate(backbone: Backbone, drafts: Sequence[Draft], *, max_rows: int) -> None:
    """Decode `drafts` until they are done, at most about `max_rows` rows at a time."""
    generator, waiting = Generator(backbone), list(reversed(drafts))
    while waiting or generator.live:
        joining: list[Draft] = []
        room = max_rows - generator.num_rows
        while waiting and (room > 0 or not (generator.live or joining)):
            joining.append(waiting.pop())
            room -= joining[-1].decoding.num_beams
        generator.join(joining)
        generator.step()
