"""What the tokenizer makes of the texts of a prepared run: how long they are, and what of them it cannot write."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from peltier_adapters.spec.tasks import EMBEDDING_TYPES, MAX_NEW_TOKENS, TOKEN_TYPES
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import BackboneConfig, load_config
from peltier_backbone.text.packing import Encoded
from peltier_backbone.text.tokenizer import Tokenizer, load_tokenizer

from peltier_training.config.preparation import Prepared
from peltier_training.config.run import Run
from peltier_training.config.task_options import find_template
from peltier_training.data.examples import Example
from peltier_training.errors import shown

_MAX_READ_ROWS = 20_000
_MAX_SHOWN = 8
_FIELD = re.compile(r"\{(?:text|pair|third)\}")
# Of the tokens of all inputs. An unknown word in a hundred, such as a face in a message, is what models are used to.
_MANY_UNKNOWN = 0.01


@dataclass(frozen=True)
class Lengths:
    """The tokens of some texts, of which the run reads or writes the first `most`."""

    tokens: Sequence[int]
    most: int

    @property
    def longest(self) -> int:
        return max(self.tokens)

    @property
    def num_cut(self) -> int:
        return sum(length > self.most for length in self.tokens)

    @property
    def share_cut(self) -> float:
        return self.num_cut / len(self.tokens)

    def warning(self, what: str, rest: str) -> Iterable[str]:
        """A sentence about the texts that are cut, if there are any; `rest` is what becomes of their ends."""
        if self.num_cut:
            yield (
                f"{what} with more than {self.most} tokens, whose rest is not {rest}: {self.num_cut} of "
                f"{len(self.tokens)}; the longest has {self.longest}."
            )


@dataclass(frozen=True)
class Target:
    """The text that a row teaches to write, its number of tokens, and what these tokens are as a text."""

    text: str
    num_tokens: int
    written: str

    @property
    def lost(self) -> Counter[str]:
        """The characters that are not written as often as the text has them."""
        return Counter(self.text) - Counter(self.written)


class TokenizedTexts:
    """The inputs, and for text to text the targets, of at most `_MAX_READ_ROWS` evenly spaced rows."""

    def __init__(self, prepared: Prepared) -> None:
        self._run, self._data = prepared.run, prepared.data

    @cached_property
    def inputs(self) -> Lengths:
        """Of the training rows."""
        return Lengths([len(row) for _, row in self._encoded], self._run.hyperparameters.max_length)

    @cached_property
    def target_lengths(self) -> Lengths | None:
        if not self.targets:
            return None
        lengths = [target.num_tokens for target in self.targets]
        found = min(max(lengths) + 1, self._config.max_tokens, MAX_NEW_TOKENS)  # as `create_task` chooses it
        return Lengths(lengths, self._run.text.max_new_tokens or found)

    @cached_property
    def targets(self) -> Sequence[Target]:
        """Of the training and validation rows."""
        if self._run.task_type != "text2text":
            return ()
        rows = (*_spaced(self._data.train.examples), *_spaced(self._data.validation.examples))
        texts = self._data.labels.texts(rows)
        known = {text: self._target(text) for text in set(texts)}
        return [known[text] for text in texts]

    @cached_property
    def unwritable(self) -> Sequence[Target]:
        """The targets that a model which has learned them writes as another text."""
        return [target for target in self.targets if target.text != target.written]

    def warnings(self) -> Iterable[str]:
        """What is lost of the texts, as sentences."""
        if self._run.task_type not in TOKEN_TYPES:
            yield from self.inputs.warning("Inputs", "read")
        if (share := self._share_unknown) > _MANY_UNKNOWN:
            yield (
                f"{share:.0%} of the tokens of the inputs stand for characters that the tokenizer does not know, which "
                f"are all alike to the model{self._named_unknown()}."
            )
        if self.target_lengths is not None:
            yield from self.target_lengths.warning("Targets", "learned")
        if self.unwritable:
            yield self._unwritable_warning()

    def _unwritable_warning(self) -> str:
        lost = sum((target.lost for target in self.unwritable), Counter[str]())
        first, num_empty = self.unwritable[0], sum(not target.written for target in self.unwritable)
        return (
            f"Targets that the tokenizer cannot write: {len(self.unwritable)} of {len(self.targets)}"
            f"{f', of which {num_empty} become empty' if num_empty else ''}"
            f"{f'; they lose {_named(lost)}' if lost else ''}; {shown(first.text)} is learned and answered as "
            f"{shown(first.written)}."
        )

    @property
    def _share_unknown(self) -> float:
        unknown = self._tokenizer.unknown_ids
        return sum(token in unknown for _, row in self._encoded for token in row.ids) / sum(self.inputs.tokens)

    def _named_unknown(self) -> str:
        unknown, tokenizer = self._tokenizer.unknown_ids, self._tokenizer
        rows = [texts for texts, row in self._encoded if not unknown.isdisjoint(row.ids)][:_MAX_SHOWN]
        found = Counter(character for texts in rows for text in texts for character in text)
        own = {one: num for one, num in found.items() if not unknown.isdisjoint(tokenizer.ids(one))}
        return f", such as {_named(Counter(own))}" if own else ""

    def _target(self, text: str) -> Target:
        ids = self._tokenizer.ids(text)
        return Target(text, len(ids), self._tokenizer.decode(ids))

    @cached_property
    def _encoded(self) -> list[tuple[tuple[str, ...], Encoded]]:
        template = _template(self._run) if self._config.generates else None
        inputs = [
            texts for example in _spaced(self._data.train.examples) for texts in _texts(example, self._run, template)
        ]
        return [(texts, self._tokenizer.encode(*texts)) for texts in inputs]

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return load_tokenizer(find_checkpoint(self._run.backbone))

    @cached_property
    def _config(self) -> BackboneConfig:
        return load_config(find_checkpoint(self._run.backbone))


def _named(characters: Counter[str]) -> str:
    most = ", ".join(repr(one) for one, _ in characters.most_common(_MAX_SHOWN))
    return f"{most}, …" if len(characters) > _MAX_SHOWN else most


def _spaced(examples: Sequence[Example]) -> Sequence[Example]:
    return examples[:: len(examples) // _MAX_READ_ROWS + 1]


def _template(run: Run) -> str:
    template = find_template(run.text.template, run.data.inputs)
    return f"{run.task} {template}" if run.text.task_prefix else template


def _texts(example: Example, run: Run, template: str | None) -> list[tuple[str, ...]]:
    """The texts of each input of an example, as they are tokenised."""
    texts = (example.input,) if isinstance(example.input, str) else tuple(example.input)
    if run.task_type in EMBEDDING_TYPES:
        return [(text,) for text in texts]
    if template is not None:
        fields = dict(zip(("{text}", "{pair}", "{third}"), texts, strict=False))
        return [(_FIELD.sub(lambda match: fields.get(match[0], match[0]), template),)]
    return [texts]
