"""Mixed batches of random adapters on random backbones of BERT-base's and T5-base's shapes."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from bench import Bench, device_work
from common.padding import pad
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Resident
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_backbone.text.packing import Encoded, Packed
from random_adapters import PRESETS, by_torch, draw_adapters, groups_of, load, use_kernels
from site_ops import compare_ops, create_cases
from tokenizers import Tokenizer, models
from torch import Tensor
from transformers import BertConfig, BertModel, PreTrainedModel, T5Config, T5EncoderModel, T5ForConditionalGeneration
from whole_predictions import compare_predictions, successive


@dataclass(frozen=True)
class BackboneSizes:
    """A backbone's shape."""

    hidden: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3072
    vocabulary: int = 30522

    @property
    def block_weights(self) -> int:
        """The weights of all maps of the encoder."""
        return self.layers * (4 * self.hidden**2 + 2 * self.hidden * self.inner)


def save_bert(directory: Path, sizes: BackboneSizes) -> Path:
    """A checkpoint of a random BERT."""
    config = BertConfig(
        vocab_size=sizes.vocabulary, hidden_size=sizes.hidden, num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads, intermediate_size=sizes.inner,
    )  # fmt: skip
    torch.manual_seed(0)
    return _save(directory, BertModel(config), ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])


def save_t5(directory: Path, sizes: BackboneSizes, num_decoder_layers: int = 1) -> Path:
    """A checkpoint of a random T5 v1.0."""
    config = T5Config(
        vocab_size=sizes.vocabulary, d_model=sizes.hidden, num_layers=sizes.layers,
        num_decoder_layers=num_decoder_layers,
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


def encode(backbone: Backbone, packed: Packed) -> Tensor:
    """Hidden states of the encoder, [tokens, hidden]."""
    with torch.inference_mode():
        return (backbone.t5.encode if backbone.config.generates else backbone.bert)(packed)


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
    ids, mask = pad([row.ids for row in rows])
    with torch.inference_mode():
        return model(input_ids=ids.to(model.device), attention_mask=mask.to(model.device)).last_hidden_state


@dataclass(frozen=True)
class Loaded:
    """A backbone with the adapters of a batch, one for each row: as the backend of its device keeps them, and as torch
    reads them."""

    backbone: Backbone
    residents: list[Resident]
    plain_residents: list[Resident]

    def mixed(self, rows: list[Encoded]) -> None:
        """A prediction for each row, as the server computes it."""
        self._predict(rows, self.residents)

    def without_kernels(self, rows: list[Encoded]) -> None:
        """torch's own products, group by group."""
        with by_torch():
            self._predict(rows, self.plain_residents)

    def bare(self, rows: list[Encoded]) -> None:
        """torch's own products without adapters."""
        encode(self.backbone, self.backbone.pack(rows))

    def _predict(self, rows: list[Encoded], residents: list[Resident]) -> None:
        forward(self.backbone, [Row(*pair) for pair in zip(rows, residents, strict=True)])


def compare(
    bench: Bench,
    sizes: BackboneSizes,
    lengths: Mapping[str, Sequence[int]],
    limits: Mapping[str, float],
    *,
    generates: bool,
) -> None:
    """Mixed batches in both dtypes: timed beside the bare backbone and plain transformers, and checked against float32
    without kernels."""
    family = "t5" if generates else "bert"
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = (save_t5 if generates else save_bert)(Path(name), sizes)
        drawn = load_backbone(str(directory))
        adapters = draw_adapters(drawn, len(next(iter(lengths.values()))) // len(PRESETS))
        exact_backbone = load_backbone(str(directory), device=bench.device.type)
        with by_torch():
            exact_residents = load(adapters, exact_backbone)
        for dtype, kind in bench.dtypes.items():
            if bench.device.type == "cpu":  # a dry run: in Triton's interpreter
                stack.enter_context(use_kernels())
            backbone = load_backbone(str(directory), device=bench.device.type, dtype=dtype)
            bench.record("backbone", family=family, dtype=dtype, kernels=backbone.kernels)
            with by_torch():
                plain_residents = load(adapters, backbone)
            residents = load(adapters, backbone)
            loaded = Loaded(backbone, residents, plain_residents)
            model = plain_model(directory, bench.device, kind, generates=generates)
            for shape, each in lengths.items():
                labels, rows = {"family": family, "shape": shape, "dtype": dtype}, draw_rows(each, sizes.vocabulary)
                least = 2.0 * sizes.block_weights * sum(each) / limits[dtype]
                _compare(bench, (loaded, model), rows, least, labels)
                batches = zip(successive(rows, residents), successive(rows, exact_residents), strict=True)
                compare_predictions(bench, backbone, exact_backbone, list(batches), labels)
                if not generates:
                    cases = (create_cases(own, groups, each) for own, groups in (
                        (backbone, groups_of(residents)), (exact_backbone, groups_of(exact_residents))
                    ))  # fmt: skip
                    compare_ops(bench, *cases, dict(limits), labels)


def _compare(
    bench: Bench, contenders: tuple[Loaded, PreTrainedModel], rows: list[Encoded], least_seconds: float,
    labels: dict[str, str],
) -> None:  # fmt: skip
    """`least_seconds` is the time of the backbone's products at the GPU's speed of large ones."""
    loaded, model = contenders
    calls: dict[str, Callable[[], object]] = {
        "mixed": lambda: loaded.mixed(rows),
        "mixed, no kernels": lambda: loaded.without_kernels(rows),
        "bare": lambda: loaded.bare(rows),
        "transformers": lambda: plain_pass(model, rows),
    }
    taken = bench.seconds(calls)
    bench.record(
        "batch", **labels, ms={name: round(own * 1e3, 3) for name, own in taken.items()},
        of_bare=taken["bare"] / taken["mixed"], of_transformers=taken["transformers"] / taken["mixed"],
        of_matmul=least_seconds / taken["mixed"], work=device_work(calls["mixed"]),
    )  # fmt: skip
