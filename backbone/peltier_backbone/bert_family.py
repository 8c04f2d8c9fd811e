"""Where the checkpoints of BERT's relatives differ from BERT's; imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass

from peltier_backbone.shape import PostNormFamily


@dataclass(frozen=True)
class BertFamily:
    """A family of post-norm encoders with absolute positions. Its task models name the encoder's tensors with `prefix`,
    and have `pretraining` heads, which the encoder lacks.

    `typed`: token types are read; other families read every token as type zero, also in pairs. `pooled`: the encoder
    has a pooler. `after_pad`: a row's first position is the padding index plus one, otherwise zero.
    """

    prefix: str
    pretraining: tuple[str, ...]
    typed: bool = False
    pooled: bool = False
    after_pad: bool = False


_ROBERTA = BertFamily("roberta.", ("lm_head.",), after_pad=True)
BERT_FAMILIES: Mapping[PostNormFamily, BertFamily] = {
    "bert": BertFamily("bert.", ("cls.",), typed=True, pooled=True),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
}
