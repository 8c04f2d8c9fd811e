"""Continuous decoding with T5: texts of any tenants, methods and lengths join and leave the batch between two steps.
The search of a text, on the CPU, chooses its next token: greedily, by sampling, or by beam search."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.cache import Cache
from torch import Tensor

from peltier_adapters.batch import choice
from peltier_adapters.batch.row import Row
from peltier_adapters.batch.runner import Runner, Steps
from peltier_adapters.spec.decoding import Decoding
from peltier_adapters.spec.tasks import TaskSpec

DraftFinish = Literal["stop", "length"]
# transformers adds this number to a score that must never win. The same number makes ties break in the same way.
_NEVER = -1.0e9


@dataclass
class SampledText:
    """One text that grows by one token a step, greedy or sampled.

    `ids` are its tokens so far, without the start and end tokens. `log_prob` is the sum of the log-probabilities of the
    tokens, including the end token. `finish` says why it has ended, and is None before its end.
    """

    decoding: Decoding
    start: int
    end: int
    ids: list[int] = field(default_factory=list)
    log_prob: float = 0.0
    finish: DraftFinish | None = None

    def __post_init__(self) -> None:
        self._generator = torch.Generator().manual_seed(self.decoding.seed)

    @property
    def greedy(self) -> bool:
        """Whether the search takes the likeliest token. The caller finds it for many texts at once, and appends it."""
        return self.decoding.temperature == 0.0

    @property
    def tokens(self) -> list[int]:
        """The input tokens of the next step, one per row: a text has one row."""
        return [self.ids[-1] if self.ids else self.start]

    def advance(self, log_probs: Tensor) -> None:
        """Add one sampled token, from log-probabilities [1, vocab], by inverse transform of one uniform number, so that
        it depends only on seed and row."""
        probabilities, tokens = (log_probs[0] / self.decoding.temperature).softmax(-1).sort(descending=True)
        total = probabilities.double().cumsum(-1)
        kept = int((total - probabilities < self.decoding.top_p).sum())
        draw = torch.rand((), generator=self._generator, dtype=torch.float64) * total[kept - 1]
        token = int(tokens[min(int((total[:kept] <= draw).sum()), kept - 1)])
        self.append(token, float(log_probs[0, token]))

    def append(self, token: int, log_prob: float) -> None:
        """Add `token`. The end token finishes the text and is not part of `ids`."""
        self.log_prob += log_prob
        if token == self.end:
            self.finish = "stop"
            return
        self.ids.append(token)
        if len(self.ids) == self.decoding.max_new_tokens:
            self.finish = "length"


class Beams:
    """Beam search for one text, as in transformers' `generate` (length penalty 1, no early stopping).

    Each step finds the 2 k likeliest continuations of the k running beams. Continuations among the first k that end are
    added to the finished beams. The first k continuations that do not end are the new running beams. The search ends
    when no running beam can be better than the worst of k finished beams. `ids`, `log_prob` and `finish` are those of
    the best beam (see `SampledText`); `tokens` are the input tokens of the next step, one per beam.
    """

    def __init__(self, decoding: Decoding, start: int, end: int) -> None:
        self._decoding, self._end, self._num = decoding, end, decoding.num_beams
        self.tokens = [start] * self._num
        self._running: list[list[int]] = [[] for _ in range(self._num)]
        self._scores = torch.full((self._num,), _NEVER)
        self._scores[0] = 0.0
        self._finished: list[tuple[float, list[int], DraftFinish]] = []
        self.finish: DraftFinish | None = None

    @property
    def ids(self) -> list[int]:
        return self._finished[0][1] if self._finished else self._running[0]

    @property
    def log_prob(self) -> float:
        if not self._finished:
            return float(self._scores[0])
        score, ids, reason = self._finished[0]
        return score * (len(ids) + (reason == "stop"))

    def advance(self, log_probs: Tensor) -> list[int]:
        """Add one token to each beam, from log-probabilities [beams, vocab]. Returns for each beam the one that it
        continues."""
        vocabulary = log_probs.shape[-1]
        total = (log_probs + self._scores[:, None]).view(-1)
        scores, places = total.topk(2 * self._num)
        sources, tokens = (places // vocabulary).tolist(), (places % vocabulary).tolist()
        texts = [[*self._running[source], token] for source, token in zip(sources, tokens, strict=True)]
        length = len(texts[0])
        ends = [token == self._end or length == self._decoding.max_new_tokens for token in tokens]
        self._finish_some((scores / length).tolist(), texts, ends)
        going = (scores + torch.tensor(ends) * _NEVER).topk(self._num).indices.tolist()
        self._running, self._scores = [texts[k] for k in going], scores[going] + torch.tensor(ends)[going] * _NEVER
        self.tokens = [tokens[k] for k in going]
        if all(ends) or not self._can_improve(length):
            self.finish = self._finished[0][2]
        return [sources[k] for k in going]

    def _finish_some(self, scores: list[float], texts: list[list[int]], ends: list[bool]) -> None:
        for score, text, ended in zip(scores[: self._num], texts, ends, strict=False):
            if not ended:
                continue
            stopped = text[-1] == self._end
            reason: DraftFinish = "stop" if stopped else "length"
            self._finished.append((score, text[:-1] if stopped else text, reason))
        self._finished = sorted(self._finished, key=lambda one: -one[0])[: self._num]

    def _can_improve(self, length: int) -> bool:
        if len(self._finished) < self._num:
            return True
        return float(self._scores[0] / length) > self._finished[-1][0]


def create_search(decoding: Decoding, start: int, end: int) -> SampledText | Beams:
    """The search for `decoding`."""
    return SampledText(decoding, start, end) if decoding.num_beams == 1 else Beams(decoding, start, end)


@dataclass(eq=False)
class Draft:
    """One text during generation. If the model's output is not finite, `failed` is set and `finish` stays None."""

    row: Row
    decoding: Decoding
    search: SampledText | Beams
    slots: list[int] = field(default_factory=list)
    failed: bool = False

    @property
    def ids(self) -> list[int]:
        """The tokens of the text so far, without start and end tokens. A beam search may change them until its end."""
        return self.search.ids

    @property
    def finish(self) -> DraftFinish | None:
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
    """Decodes drafts together, by the `runner` of the backbone; without it, it is chosen here. A draft gets the same
    text as alone. Use it from one thread at a time."""

    def __init__(self, backbone: Backbone, runner: Runner | None = None) -> None:
        self._runner = runner or choice.choose_runner(backbone)
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
        slots = self._runner.join([draft.row for draft in arriving], copies, self._cache)
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
        return self._runner.arrange(rows, slots, self._cache)

    def _advance(self, drafts: Sequence[Draft], logits: Tensor) -> None:
        chosen = self._runner.find_likeliest(logits)
        searching: list[tuple[Draft, slice]] = []
        start = 0
        for draft in drafts:
            first, start = start, start + draft.decoding.num_beams
            if not all(math.isfinite(log_prob) for _, log_prob in chosen[first:start]):
                draft.failed = True
            elif isinstance(draft.search, SampledText) and draft.search.greedy:
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


@dataclass(frozen=True)
class TextAnswer:
    """A generated text. In a closed task, `label` or `value` is the meaning of the text; None if the text is not a
    target of the task. `score` is the geometric mean of the probabilities of the tokens."""

    text: str
    score: float
    finish_reason: DraftFinish
    label: str | None = None
    value: float | None = None


def text_answer(task: TaskSpec, backbone: Backbone, draft: Draft) -> TextAnswer:
    """The answer of a finished draft."""
    assert draft.finish is not None, "only finished drafts answer"
    text = backbone.tokenizer.decode(draft.ids)
    label, value = None, None
    if text.strip() in task.targets:
        index = task.targets.index(text.strip())
        label = task.labels[index] if task.type == "classification" else None
        value = float(task.targets[index]) if task.type == "regression" else None
    return TextAnswer(text, draft.score, draft.finish, label, value)
