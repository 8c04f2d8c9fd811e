"""The frozen T5, v1.0 and v1.1, mT5 and umT5 (Raffel et al. 2020; docs/methods.md#sites)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from peltier_backbone.attention.adaptation import NO_ADAPTATION, Adaptation
from peltier_backbone.attention.view import View
from peltier_backbone.checkpoint.t5_config import T5Config
from peltier_backbone.decoding.cache import Cache, EncoderKV
from peltier_backbone.decoding.step_view import StepView
from peltier_backbone.decoding.targets import Targets, TreeView
from peltier_backbone.linear.linear import Linear
from peltier_backbone.linear.norm import Norm
from peltier_backbone.linear.table import Table
from peltier_backbone.t5.stacks import Decoder, Encoder
from peltier_backbone.text.packing import Packed


class EncoderRows(Protocol):
    """The rows of an encoder. `Packed` implements this protocol."""

    @property
    def lengths(self) -> tuple[int, ...]: ...


@dataclass(frozen=True)
class T5:
    """The frozen encoder-decoder. Nothing changes it; a batch passes its adapters as an `Adaptation`.

    The rows of the adaptation are encoder rows in `encode` and `project_kv`, and decoder tokens in the other methods.
    """

    config: T5Config
    embedding: Table
    encoder: Encoder
    decoder: Decoder
    lm_head: Linear

    def encode(self, packed: Packed, adaptation: Adaptation = NO_ADAPTATION) -> Tensor:
        """The encoder's states after its final norm, [tokens, hidden]."""
        x = adaptation.embed(self.embedding(packed.ids))
        return self.encoder(x, packed.lengths, adaptation)

    def project_kv(self, rows: EncoderRows, states: Tensor, adaptation: Adaptation = NO_ADAPTATION) -> EncoderKV:
        """The keys and values of the encoder's `states` for every cross-attention, computed once for each row."""
        blocks = self.decoder.blocks
        return EncoderKV(tuple(block.cross.project_kv(states, adaptation) for block in blocks), rows.lengths)

    def decode(self, targets: Targets, memory: EncoderKV, adaptation: Adaptation = NO_ADAPTATION) -> Tensor:
        """Teacher forcing: the decoder's states after its final norm, [nodes, hidden]; row r reads memory row r."""
        return self.decoder.run(self.embedding(targets.ids), self.view(targets, memory, adaptation), adaptation)

    def view(self, targets: Targets, memory: EncoderKV, adaptation: Adaptation = NO_ADAPTATION) -> View:
        """What the nodes of `targets` attend to in `decode`."""
        rows = TreeView(targets, memory, self.decoder.bias, self.config.num_heads)
        return self.decoder.view(rows, len(targets.ids), adaptation)

    def arrange(self, slots: Sequence[int], cache: Cache) -> StepView:
        """The rows of the next steps, one for each of the distinct `slots`, until rows join or leave the cache."""
        return StepView(slots, cache, self.decoder.bias)

    def step(self, ids: Tensor, rows: StepView, adaptation: Adaptation = NO_ADAPTATION) -> Tensor:
        """The decoder's states [rows, hidden] for one more token, `ids` [rows], of each row. Each slot grows by its
        token."""
        rows.begin()
        hidden = self.decoder(self.embedding(ids), rows, adaptation)
        rows.end()
        return hidden

    def logits(self, hidden: Tensor, adaptation: Adaptation = NO_ADAPTATION) -> Tensor:
        """Next-token logits of decoder states, [n, hidden] -> [n, vocab]."""
        x = hidden * self.config.hidden_size**-0.5 if self.config.scaled else hidden
        return adaptation.project(0, "lm_head", x, self.lm_head(x))

    def norms(self) -> list[Norm]:
        """All norms in the order of `Adaptation.norm`: the encoder's, then the decoder's."""
        return self.encoder.norms() + self.decoder.norms()
