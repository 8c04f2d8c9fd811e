"""What do the encoders of other families cost, beside the BERT of the same shape and beside transformers?

    .venv/bin/python benchmarks/encoder_families.py [--layers 4] [--rounds 7] [--family mpnet]

Random checkpoints of BERT-base's shape, with fewer layers and a small vocabulary. Milliseconds are CPU time of a
forward with one thread, the median of the rounds: one text, 16 texts of 8 to 64 tokens, and the longest text. For each
family: the native kernels in float32 and in int8, the layers in torch, and transformers, which pads the texts. The
last columns say how many times as fast as transformers the native kernels are in float32, and how many times the time
of BERT's forward they take.

Small: --layers 1 --rounds 1
"""

import random
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from common.harness import Table, create_parser, time_by_turns
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_backbone.native.choice import kernels_in_use
from peltier_backbone.text.packing import Encoded
from tokenizers import Tokenizer, models
from transformers import AutoConfig, AutoModel, PreTrainedModel

SHAPE = {
    "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 2000, "hidden_act": "gelu",
}  # fmt: skip
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "bert": {"max_position_embeddings": 512, "type_vocab_size": 2},
    "deberta-v2": {
        "max_position_embeddings": 512,
        "type_vocab_size": 0,
        "relative_attention": True,
        "position_buckets": 256,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": "p2c|c2p",
        "position_biased_input": False,
        "layer_norm_eps": 1e-7,
    },
    "eurobert": {
        "max_position_embeddings": 512,
        "num_key_value_heads": 4,
        "hidden_act": "silu",
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "mask_token_id": 3,
    },
    "gte": {"max_position_embeddings": 512, "type_vocab_size": 1},
    "jina_embeddings_v3": {"max_position_embeddings": 512},
    "nomic_bert": {"max_position_embeddings": 512, "hidden_act": "silu"},
    "mpnet": {"max_position_embeddings": 514, "pad_token_id": 1, "layer_norm_eps": 1e-5},
}
SIDES = ("float32", "int8", "torch", "transformers")


def draw_batches(longest: int) -> dict[str, list[int]]:
    """The lengths of the rows of each batch."""
    draw = random.Random(0)
    return {
        "one text": [24],
        "16 texts": [max(8, min(64, round(draw.gauss(25, 12)))) for _ in range(16)],
        "a long text": [longest],
    }


def save_random(family: str, layers: int, directory: Path) -> PreTrainedModel:
    """A random checkpoint of `family` in `directory`, and its model."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, num_hidden_layers=layers, **{**SHAPE, **FAMILIES[family]})
    model = AutoModel.from_config(config).eval()
    model.save_pretrained(directory)
    Tokenizer(models.WordLevel({"[UNK]": 0}, "[UNK]")).save(str(directory / "tokenizer.json"))
    return model


def _ours(backbone: Backbone, kernels: str, rows: Sequence[Encoded]) -> Callable[[], object]:
    """A forward by the kernels that have packed the backbone's maps."""

    def run() -> None:
        with kernels_in_use(kernels):
            backbone.encode(backbone.pack(list(rows)))

    return run


def _theirs(model: PreTrainedModel, rows: Sequence[Encoded]) -> Callable[[], object]:
    width, pad = max(map(len, rows)), model.config.pad_token_id or 0
    ids = torch.tensor([[*row.ids, *[pad] * (width - len(row))] for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return lambda: model(input_ids=ids, attention_mask=mask)


def main() -> None:
    parser = create_parser(__doc__, layers=4, rounds=7)
    parser.add_argument("--family", choices=[name for name in FAMILIES if name != "bert"], nargs="+")
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = Table("family, batch", *(f"{side} ms" for side in SIDES), "/ transf.", "/ BERT", "int8 / BERT")
    families = ["bert", *(options.family or [name for name in FAMILIES if name != "bert"])]
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        found = _measure(families, options.layers, options.rounds, Path(folder))
    for batch in draw_batches(0):
        for family in families:
            own, base = found[batch, family], found[batch, "bert"]
            table.row(
                f"{family}, {batch}", *(f"{1e3 * own[side]:.1f}" for side in SIDES),
                f"{own['transformers'] / own['float32']:.2f}", f"{own['float32'] / base['float32']:.2f}",
                f"{own['int8'] / base['int8']:.2f}",
            )  # fmt: skip


def _measure(
    families: Sequence[str], layers: int, rounds: int, folder: Path
) -> dict[tuple[str, str], dict[str, float]]:
    """The median seconds of each side, by batch and family. All sides take turns."""
    calls: dict[tuple[str, str, str], Callable[[], object]] = {}
    for family in families:
        model = save_random(family, layers, folder / family)
        backbones = {"float32": _load(folder / family, "auto"), "int8": _load(folder / family, "auto", "int8")}
        backbones["torch"] = _load(folder / family, "torch")
        for batch, lengths in draw_batches(backbones["torch"].config.max_tokens).items():
            rows = [Encoded(tuple(5 + at % 1900 for at in range(length)), (0,) * length) for length in lengths]
            for side, backbone in backbones.items():
                calls[batch, family, side] = _ours(backbone, "torch" if side == "torch" else "auto", rows)
            calls[batch, family, "transformers"] = _theirs(model, rows)
    found: dict[tuple[str, str], dict[str, float]] = {}
    for (batch, family, side), seconds in time_by_turns(calls, rounds).items():
        found.setdefault((batch, family), {})[side] = statistics.median(seconds)
    return found


def _load(directory: Path, kernels: str, dtype: str = "float32") -> Backbone:
    with kernels_in_use(kernels):
        return load_backbone(str(directory), dtype=dtype)


if __name__ == "__main__":
    main()
