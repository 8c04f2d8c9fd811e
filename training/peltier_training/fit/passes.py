"""The rows of a training step, in passes of bounded memory. Imports no torch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from peltier_adapters.spec.parts import Parts, PrefixSpec, count_parameters, served_parts
from peltier_backbone.checkpoint.config import BackboneConfig

from peltier_training.errors import TrainingError

# Float32 values of each token in each block that a pass keeps until its backward pass, as multiples of the hidden size:
# 0.24 MB a token on MiniLM for rows of 64 tokens, 0.38 for rows of 512, with the shares of an attention.
_KEPT_STATES = 26
# A decoder's block also has a cross-attention.
_KEPT_DECODER_STATES = 40
# Logits of a written token, their softmax and a gradient. An adapter's inner values, their activations and a gradient.
_COPIES = 3
_FLOAT_BYTES = 4


def as_gib(num_bytes: int) -> str:
    """A number of bytes for a message, such as "4 GiB"."""
    return f"{num_bytes / 2**30:.3g} GiB"


@dataclass(frozen=True)
class Size:
    """The tokens that a row reads, and those that a T5 writes for it."""

    read: int
    written: int = 0


@dataclass(frozen=True)
class PassMemory:
    """Estimates the memory of passes with gradients over rows of an adapter with `parts`, of which a step keeps
    `copies` until its backward pass. The first `lower` blocks of an encoder have no gradients, so a pass keeps nothing
    of them."""

    config: BackboneConfig
    parts: Parts
    copies: int = 1
    lower: int = 0

    def num_bytes(self, sizes: Sequence[Size]) -> int:
        """The bytes of one pass over rows of these sizes."""
        config, read, written = self.config, sum(size.read for size in sizes), sum(size.written for size in sizes)
        longest = max(size.read for size in sizes) + self._prefix
        writers = max(size.written for size in sizes)
        encoder = read * (_KEPT_STATES * config.hidden_size + self._own) + len(sizes) * config.num_heads * longest**2
        values = (config.num_layers - self.lower) * encoder
        if written:
            blocks = config.num_blocks - config.num_layers
            attended = config.num_heads * (longest + writers + self._prefix)
            values += blocks * written * (_KEPT_DECODER_STATES * config.hidden_size + self._own + attended)
            values += _COPIES * written * config.vocab_size
        return _FLOAT_BYTES * self.copies * values

    @property
    def _prefix(self) -> int:
        return sum(part.length for part in self.parts if isinstance(part, PrefixSpec))

    @property
    def _own(self) -> int:
        """Values of a token in each block that the adapter adds: as a map from the hidden size has them."""
        num = count_parameters(served_parts(self.parts), self.config)
        return _COPIES * num // (self.config.hidden_size * (self.config.num_blocks - self.lower))

    def check(self, sizes: Sequence[Size], most: int) -> None:
        """Raise a `TrainingError` if one of the rows alone needs more than `most` bytes."""
        for size in (max(sizes, key=lambda size: size.read), max(sizes, key=lambda size: size.written)):
            if (needed := self.num_bytes([size])) > most:
                written = f" and writes {size.written:,}" if size.written else ""
                raise TrainingError(
                    f"a row reads {size.read:,} tokens{written}, which needs about {as_gib(needed)} in training, and "
                    f"at most {as_gib(most)} are used; lower max_length{' or max_new_tokens' if written else ''}"
                )

    def divide(self, items: Sequence[Sequence[Size]], most: int) -> Iterator[slice]:
        """Slices of `items`, which are rows or pairs of rows, whose passes need at most `most` bytes. An item alone may
        need more."""
        first = 0
        for last in range(1, len(items) + 1):
            if last - first > 1 and self.num_bytes([size for item in items[first:last] for size in item]) > most:
                yield slice(first, last - 1)
                first = last - 1
        yield slice(first, len(items))
