"""Mixed batches of random adapters on random backbones of BERT-base's and T5-base's shapes."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import torch
from bench import DTYPES, Bench
from peltier_adapters.ops import backend
from peltier_adapters.ops.backend import AdapterGroup
from peltier_adapters.ops.torch import TORCH
from peltier_adapters.ops.triton import TritonBackend
from peltier_backbone.adaptation import NO_ADAPTATION, Adaptation
from peltier_backbone.load import Backbone, load_backbone
from peltier_backbone.packing import Encoded, Packed
from random_adapters import PRESETS, Adapters, adapt
from tokenizers import Tokenizer, models
from torch import Tensor
from transformers import BertConfig, BertModel, PreTrainedModel, T5Config, T5EncoderModel, T5ForConditionalGeneration
from whole_predictions import compare_graphs, create_residents, successive

# Mean difference of the hidden states after all layers, as a share of their mean size.
TOLERANCE = {"float32": 1e-4, "bfloat16": 3e-2}


@dataclass(frozen=True)
class Sizes:
    """A backbone's shape."""

    hidden: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3072
    vocabulary: int = 30522


def save_bert(directory: Path, sizes: Sizes) -> Path:
    """A checkpoint of a random BERT."""
    config = BertConfig(
        vocab_size=sizes.vocabulary, hidden_size=sizes.hidden, num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads, intermediate_size=sizes.inner,
    )  # fmt: skip
    torch.manual_seed(0)
    return _save(directory, BertModel(config), ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])


def save_t5(directory: Path, sizes: Sizes) -> Path:
    """A checkpoint of a random T5 v1.0."""
    config = T5Config(
        vocab_size=sizes.vocabulary, d_model=sizes.hidden, num_layers=sizes.layers, num_decoder_layers=1,
        num_heads=sizes.heads, d_kv=sizes.hidden // sizes.heads, d_ff=sizes.inner, decoder_start_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    return _save(directory, T5ForConditionalGeneration(config), ["<pad>", "</s>", "<unk>"])


def _save(directory: Path, model: PreTrainedModel, specials: list[str]) -> Path:
    model.save_pretrained(directory)
    unknown = next(name for name in specials if "unk" in name.lower())
    words = models.WordLevel({name: number for number, name in enumerate(specials)}, unk_token=unknown)
    tokenizer = Tokenizer(words)
    tokenizer.add_special_tokens(specials)
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


def encode(backbone: Backbone, packed: Packed, adaptation: Adaptation = NO_ADAPTATION) -> Tensor:
    """Hidden states of the encoder, [tokens, hidden]."""
    with torch.inference_mode():
        return (backbone.t5.encode if backbone.config.generates else backbone.bert)(packed, adaptation)


def draw_rows(lengths: Sequence[int], vocabulary: int) -> list[Encoded]:
    """Rows of random tokens."""
    generator = torch.Generator().manual_seed(2)
    drawn = [torch.randint(5, vocabulary, (length,), generator=generator).tolist() for length in lengths]
    return [Encoded(tuple(ids), (0,) * len(ids)) for ids in drawn]


def plain_model(directory: Path, device: torch.device, dtype: torch.dtype, *, generates: bool) -> PreTrainedModel:
    """transformers' own encoder of the same weights."""
    kind = T5EncoderModel if generates else BertModel
    return kind.from_pretrained(directory, dtype=dtype).eval().to(device)


def plain_pass(model: PreTrainedModel, rows: Sequence[Encoded]) -> Tensor:
    """Padded to the longest row, with a mask."""
    width = max(map(len, rows))
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = torch.tensor(row.ids)
        mask[number, : len(row)] = 1
    with torch.inference_mode():
        return model(input_ids=ids.to(model.device), attention_mask=mask.to(model.device)).last_hidden_state


def by_torch() -> AbstractContextManager[object]:
    """Replaces kernels by torch while the block runs."""
    return patch.object(backend, "choose_backend", lambda device, dtype: TORCH)


@dataclass(frozen=True)
class Comparison:
    """One batch on one backbone, and the contenders that compute it."""

    backbone: Backbone
    exact: Backbone
    model: PreTrainedModel
    groups: list[AdapterGroup]
    exact_groups: list[AdapterGroup]
    rows: list[Encoded]

    def mixed(self) -> Tensor:
        return self._encode(self.backbone, self.groups)

    def without_kernels(self) -> Tensor:
        """torch's own products, group by group."""
        with by_torch():
            return self._encode(self.backbone, self.groups)

    def bare(self) -> Tensor:
        return encode(self.backbone, self.backbone.pack(self.rows))

    def transformers(self) -> Tensor:
        return plain_pass(self.model, self.rows)

    def reference(self) -> Tensor:
        """In float32 without kernels."""
        with by_torch():
            return self._encode(self.exact, self.exact_groups)

    def _encode(self, backbone: Backbone, groups: Sequence[AdapterGroup]) -> Tensor:
        with torch.inference_mode():
            packed = backbone.pack(self.rows)
            return encode(backbone, packed, adapt(backbone, groups, packed)).float()


def compare(bench: Bench, sizes: Sizes, lengths: Mapping[str, Sequence[int]], *, generates: bool) -> None:
    """Mixed batches in both dtypes: checked against float32 without kernels, then timed beside the bare backbone and
    plain transformers."""
    family = "t5" if generates else "bert"
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        if bench.device.type == "cpu":  # a dry run: in Triton's interpreter
            interpreted = TritonBackend(bench.device)
            stack.enter_context(patch.object(backend, "choose_backend", lambda device, dtype: interpreted))
        directory = (save_t5 if generates else save_bert)(Path(name), sizes)
        count = len(next(iter(lengths.values()))) // len(PRESETS)
        drawn = load_backbone(str(directory))
        adapters = Adapters(drawn, count, bench.device)
        exact = load_backbone(str(directory), device=bench.device.type)
        exact_groups = adapters.on(exact)
        residents = [] if generates else create_residents(drawn, exact, count)
        for dtype, kind in DTYPES.items():
            backbone = load_backbone(str(directory), device=bench.device.type, dtype=dtype)
            bench.record("backbone", family=family, dtype=dtype, kernels=backbone.kernels)
            groups = adapters.on(backbone)
            model = plain_model(directory, bench.device, kind, generates=generates)
            for shape, each in lengths.items():
                labels, rows = {"family": family, "shape": shape, "dtype": dtype}, draw_rows(each, sizes.vocabulary)
                _compare(bench, Comparison(backbone, exact, model, groups, exact_groups, rows), labels)
                if residents:
                    compare_graphs(bench, backbone, exact, successive(rows, residents), labels)


def _compare(bench: Bench, batch: Comparison, labels: dict[str, str]) -> None:
    expected = batch.reference()
    size, tolerance = expected.abs().mean(), TOLERANCE[labels["dtype"]]

    def error(found: Tensor) -> float:
        return float((found.float() - expected).abs().mean() / size)

    bench.check("batch check", error(batch.mixed()), tolerance, **labels, adapters_change=error(batch.bare()))
    taken = bench.seconds({
        "mixed": batch.mixed,
        "mixed, no kernels": batch.without_kernels,
        "bare": batch.bare,
        "transformers": batch.transformers,
    })  # fmt: skip
    bench.record(
        "batch", **labels, ms={name: round(own * 1e3, 3) for name, own in taken.items()},
        of_bare=taken["bare"] / taken["mixed"], of_transformers=taken["transformers"] / taken["mixed"],
    )  # fmt: skip
