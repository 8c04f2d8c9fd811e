"""Fuzzes the C entry points with random sizes, compiled with the sanitizers of addresses and of undefined behaviour.

    python tests/fuzz/sanitize.py plain avx2 --folder SANITIZED
    LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0 \
        UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 PYTHONMALLOC=malloc \
        python tests/fuzz/fuzz_kernels.py SANITIZED avx2 --seconds 600

Half of the time single kernels get tensors of random sizes, dtypes and strides; half of the time a random BERT,
DeBERTa, ModernBERT or T5 answers a mixed batch of random adapters, whose answers must be those of each row alone. A
sanitizer ends the process with a report; SANITIZED/avx2.seed has the seed then, and --seed repeats it.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.errors import AdapterError
from peltier_adapters.inputs import encode_input
from peltier_adapters.presets.presets import PRESETS
from peltier_adapters.residency.bank import Banks
from peltier_backbone.linear.norm import LayerNorm, RMSNorm
from peltier_backbone.load import EXACT, load_backbone
from peltier_backbone.native import choice
from peltier_backbone.native.choice import kernels_in_use
from peltier_backbone.native.library import Library
from peltier_backbone.native.program import ACTIVATIONS, NativeGate, NativeProgram, place_op, place_prefix, step, vector
from peltier_backbone.native.rows import PlacedRow, PlacedRows, Table, TableGroup
from torch import Tensor
from transformers import (
    BertConfig,
    BertModel,
    DebertaV2Config,
    DebertaV2Model,
    ModernBertConfig,
    ModernBertModel,
    T5Config,
    T5ForConditionalGeneration,
)

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "benchmarks")]

from common.adapters import make_bytes, make_task  # noqa: E402

from tests.support import inner_kernels  # noqa: E402
from tests.support.inner_kernels import PlacedDistances, PlacedPrefixes  # noqa: E402
from tests.support.small_tokenizers import TEXTS, deberta_unigram, unigram, word_piece  # noqa: E402

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 23, 24, 25, 31, 32, 33, 47, 48, 49, 63, 64, 65, 96, 100, 130, 257)
ROWS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 31, 33, 64, 70)
HEAD_SIZES = (1, 3, 4, 8, 12, 16, 17, 20, 32, 64)
LONG_SHARE = 0.1  # of calls of attention, with more keys than a block has
MODEL_SHARE = 0.005  # a model takes about two hundred times as long as a call
FAMILIES = ("bert", "deberta-v2", "modernbert", "t5")
DTYPES = (torch.float32, torch.bfloat16)


class Kernels:
    """One random call of each kernel."""

    def __init__(self, library: Library, draw: random.Random) -> None:
        self._library, self._random = library, draw
        self.calls = (
            *(self.multiply, self.int8, self.activate, self.norm, self.adapt, self.attend, self.attend_placed),
            *(self.rotate, self.keep_keys, self.likeliest),
        )

    def _one(self, values: tuple[int, ...] = SIZES) -> int:
        return self._random.choice(values)

    def _tensor(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A part of a wider tensor now and then, and with numbers that are not finite."""
        before, behind = (self._random.choice((0, 0, 1, 3)) for _ in range(2))
        whole = torch.randn(*shape[:-1], before + shape[-1] + behind)
        if whole.numel() and self._random.random() < 0.1:
            whole.view(-1)[self._random.randrange(whole.numel())] = self._random.choice((float("nan"), float("inf")))
        return whole.to(dtype or torch.float32)[..., before : before + shape[-1]]

    def _activation(self) -> str:
        return self._random.choice([*ACTIVATIONS])

    def multiply(self) -> None:
        rows, inner, outer, dtype = self._one(ROWS), self._one(), self._one(), self._random.choice(DTYPES)
        weight = self._library.pack(torch.randn(outer, inner).to(dtype))
        bias = torch.randn(outer) if self._random.random() < 0.5 else None
        self._library.multiply(self._tensor(rows, inner, dtype=dtype), weight, bias, self._activation())

    def int8(self) -> None:
        rows, inner, outer = self._one(ROWS), self._one(), self._one()
        gated = self._random.random() < 0.5

        def pack(outer: int, inner: int) -> object:
            values = torch.randint(-127, 128, (outer, inner), dtype=torch.int8)
            bias = torch.randn(outer) if self._random.random() < 0.5 else None
            return self._library.pack_int8(values, torch.rand(outer) + 0.01, bias)

        x, expand = self._tensor(rows, inner), pack(outer * (1 + gated), inner)
        self._library.multiply_int8(x, expand, self._activation())
        self._library.rows_int8(expand, torch.randint(0, outer, (rows,)))
        inner_kernels.feed_forward_int8(self._library, x, expand, pack(inner, outer), self._activation(), gated=gated)

    def activate(self) -> None:
        width, gated = self._one(), self._random.random() < 0.5
        x = self._tensor(self._one(ROWS), width * (1 + gated), dtype=self._random.choice(DTYPES))
        inner_kernels.activate(self._library, x, self._activation(), gated=gated)

    def norm(self) -> None:
        rows, width, dtype = self._one(ROWS), self._one(), self._random.choice(DTYPES)
        weight, bias = torch.randn(2, width).to(self._random.choice(DTYPES))
        kind = LayerNorm(weight, bias, 1e-5) if self._random.random() < 0.5 else RMSNorm(weight, 1e-5)
        residual = self._tensor(rows, width, dtype=dtype) if self._random.random() < 0.5 else None
        self._library.norm(self._tensor(rows, width, dtype=dtype), residual, weight, kind.bias, kind)

    def adapt(self) -> None:
        lengths = [self._one(ROWS) for _ in range(self._random.randint(1, 5))]
        width, outer, rows = self._one(), self._one(), sum(lengths)
        programs, kept = [], []
        for _ in lengths:
            middle = self._one()
            maps = torch.randn(width, middle), torch.randn(middle), torch.randn(middle, outer)
            kept.append(maps)
            steps = [step(maps[0], maps[1], activation=self._activation()), step(maps[2], None)]
            programs.append(NativeProgram([place_op(0, steps, column=2, gain=0.5)], 1, {}, 0, None))
        table = Table(lengths, [TableGroup(1, program) for program in programs])
        x, y = self._tensor(rows, width), torch.randn(rows, outer + 3)
        self._library.adapt(y, x, None, table, 0, torch.empty(1, max(rows, 1)))

    def attend(self) -> None:
        """Rows that attend to themselves, now and then in several blocks of queries and of keys."""
        long = self._random.random() < LONG_SHARE
        lengths = [self._random.randint(1, 40) for _ in range(self._random.randint(1, 4))]
        if long:
            lengths[self._random.randrange(len(lengths))] = self._long()
        seen = [self._random.randint(1, length) for length in lengths]
        window = self._random.choice((None, 1, 3, 9, *((100, 511, 600) if long else ())))
        heads, size = self._random.choice((1, 2) if long else (1, 2, 3, 4)), self._random.choice(HEAD_SIZES)
        qkv = torch.randn(sum(lengths), 3 * heads * size).to(self._random.choice(DTYPES))
        rows = PlacedRows.packed(lengths, lengths if window else seen)
        prefixes = self._prefixes(lengths, heads, size) if self._random.random() < 0.4 else None
        distances = self._distances(heads, size, max(lengths)) if self._random.random() < 0.4 else None
        more = {"rounded": self._random.random() < 0.5, "window": window, "distances": distances}
        inner_kernels.attend(self._library, *qkv.chunk(3, -1), size, rows, heads, prefixes, scale=size**-0.5, **more)

    def _long(self) -> int:
        return self._random.choice((511, 512, 513, 600, 1023, 1024, 1025, 1100, self._random.randint(500, 1100)))

    def _prefixes(self, lengths: list[int], heads: int, size: int) -> PlacedPrefixes:
        """Each row has a prefix with a gate or without, or none."""
        gates, groups = torch.randn(len(lengths)), []
        for _ in lengths:
            length = self._random.choice((511, 512, 700) if self._random.random() < LONG_SHARE else (1, 2, 5, 9, 17))
            prefix = torch.randn(2, length, heads, size).transpose(1, 2)
            gate = NativeGate(vector(gates), vector(gates), 1, 0) if self._random.random() < 0.5 else None
            program = NativeProgram([place_prefix(0, *prefix, gate)], 1, {}, 0, prefix)
            groups.append(TableGroup(1, program if self._random.random() < 0.7 else None))
        return PlacedPrefixes(Table(lengths, groups), 0, gates)

    def _distances(self, heads: int, size: int, width: int) -> PlacedDistances:
        """Between the tokens of rows of `width` tokens: queries, keys or both."""
        queries, keys = torch.randn(2, heads, size, 2 * width - 1)
        without = self._random.choice(("nothing", "queries", "keys"))
        return PlacedDistances(None if without == "queries" else queries, None if without == "keys" else keys)

    def attend_placed(self) -> None:
        """Rows that attend to keys of a store, now and then in several blocks."""
        long = self._random.random() < LONG_SHARE
        heads, size, slots = self._random.choice((1, 2, 3)), self._random.choice((3, 8, 16, 20)), 1200 if long else 60
        dtype = self._random.choice(DTYPES)
        store = torch.randn(slots, 2 * heads * size).to(dtype)
        places, first, single = [], 0, self._random.random() < 0.3
        for _ in range(self._random.randint(1, 4)):
            queries = 1 if single else self._random.choice((1, 2, 5, 17, *((95, 97, 200) if long else ())))
            keys = self._long() if long else self._random.randint(1, 40)
            bias = torch.randn(heads, queries, keys) if self._random.random() < 0.5 else None
            places.append(PlacedRow(first, queries, self._random.randint(0, slots - keys), keys, bias))
            first += queries
        query = torch.randn(first, heads * size).to(dtype)
        once = all(place.queries == 1 for place in places)
        lengths = [place.queries for place in places]
        prefixes = self._prefixes(lengths, heads, size) if self._random.random() < 0.4 else None
        keys, values = store.chunk(2, -1)
        rows = PlacedRows.place(places)
        inner_kernels.attend(self._library, query, keys, values, size, rows, heads, prefixes, once=once)

    def rotate(self) -> None:
        heads, size, rows = self._random.choice((1, 2, 3)), 2 * self._random.randint(1, 20), self._one(ROWS)
        x = torch.randn(rows, 3 * heads * size).to(self._random.choice(DTYPES))
        inner_kernels.rotate(self._library, x, torch.randn(9, size), torch.randint(0, 9, (rows,)), 2 * heads)

    def keep_keys(self) -> None:
        heads, size, width, slots = (self._random.randint(1, 5) for _ in range(4))
        dtype, rows = self._random.choice(DTYPES), self._random.randint(1, width)
        store, pairs = torch.zeros(2, slots, heads, width, size).to(dtype), torch.randn(rows, 2 * heads * size)
        slot = self._random.randrange(slots)
        places = torch.arange(rows) + slot * heads * width
        inner_kernels.keep_keys(self._library, store, pairs.to(dtype), places)

    def likeliest(self) -> None:
        self._library.likeliest(self._tensor(self._one(ROWS), self._one()))


def save_model(draw: random.Random, family: str, directory: Path) -> None:
    """A random model of the family, and its tokenizer."""
    heads = draw.choice((1, 2, 3, 4))
    hidden, layers, inner = heads * draw.choice((4, 8, 10, 12, 16, 20)), draw.randint(1, 3), draw.choice(SIZES[6:])
    sizes = {"hidden_size": hidden, "num_attention_heads": heads, "intermediate_size": inner}
    sizes |= {"num_hidden_layers": layers, "max_position_embeddings": 96}
    tokenizer = {"t5": unigram, "deberta-v2": deberta_unigram}.get(family, word_piece)()
    words = tokenizer.get_vocab_size()
    if family == "t5":
        sizes = {"d_model": hidden, "d_kv": hidden // heads, "d_ff": inner, "num_heads": heads, "num_layers": layers}
        gated = draw.choice(("relu", "gated-gelu"))
        config = T5Config(vocab_size=words, feed_forward_proj=gated, decoder_start_token_id=0, **sizes)
        model = T5ForConditionalGeneration(config)
    elif family == "deberta-v2":
        kinds = draw.choice((["p2c", "c2p"], ["p2c"], ["c2p"]))
        sizes |= {"share_att_key": draw.random() < 0.5, "position_buckets": draw.choice((-1, 8)), "pos_att_type": kinds}
        sizes |= {"norm_rel_ebd": draw.choice(("layer_norm", "none")), "conv_kernel_size": draw.choice((0, 3))}
        config = DebertaV2Config(
            vocab_size=words, type_vocab_size=0, relative_attention=True, position_biased_input=draw.random() < 0.5,
            conv_act="gelu", max_relative_positions=draw.choice((-1, 30)), **sizes,
        )  # fmt: skip
        model = DebertaV2Model(config)
    elif family == "modernbert":
        special = {"pad_token_id": 0, "bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3, "sep_token_id": 3}
        model = ModernBertModel(
            ModernBertConfig(vocab_size=words, local_attention=draw.choice((2, 8, 32)), **special, **sizes)
        )
    else:
        model = BertModel(BertConfig(vocab_size=words, **sizes))
    model.save_pretrained(directory)
    tokenizer.save(str(directory / "tokenizer.json"))


def answer_batch(draw: random.Random, family: str, directory: Path) -> bool:
    """A random backbone answers random adapters; whether their sizes fit it."""
    writes, precision = family == "t5", draw.choice(("float32", "int8"))
    save_model(draw, family, directory)
    backbone = load_backbone(str(directory), dtype=precision)
    presets = [one.name for one in PRESETS.values() if (one.t5 if writes else one.encoder) is not None]
    rows, banks = [], Banks(backbone)
    for number, preset in enumerate(draw.sample(presets, 4)):
        try:
            task = make_task(backbone, max_length=64)
            artifact = read_artifact(make_bytes(backbone, preset, number, task=task), backbone)
        except AdapterError as error:
            # Sizes may not fit, and small random weights may have no effect; a wrong golden output is a fault.
            if "does not reproduce" in str(error) and "has no effect" not in str(error):
                raise
            continue
        resident = banks.add(artifact)
        texts = [draw.choice(TEXTS) * draw.randint(1, 3) for _ in range(draw.randint(1, 6))]
        rows += [Row(encode_input(backbone, resident.task, text), resident) for text in texts] if not writes else []
    draw.shuffle(rows)
    together = forward(backbone, rows) if rows else []
    for row, answer in zip(rows, together, strict=True):
        alone = forward(backbone, [row])[0].logits
        assert backbone.kernels["answers"] != EXACT or torch.equal(alone, answer.logits), (alone, answer.logits)
    return bool(rows) or writes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder of the sanitized libraries")
    parser.add_argument("level")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, help="begin with this one; by default by the time")
    parser.add_argument("--seeds", type=int, help="end after this number of them; with --seed 1 by default")
    asked = parser.parse_args()
    choice._FOLDER = asked.folder  # the other levels are not there
    state = choice.survey_library(asked.level)
    assert state.library is not None, state.reason
    seed, end = int(time.time() * 1000) if asked.seed is None else asked.seed, time.time() + asked.seconds
    last = seed + (asked.seeds or (1 if asked.seed is not None else sys.maxsize))
    counts = Counter[str]()
    with kernels_in_use(asked.level), torch.inference_mode():
        while seed < last and time.time() < end:
            (asked.folder / f"{asked.level}.seed").write_text(str(seed))
            draw = random.Random(seed)
            torch.manual_seed(seed)
            if draw.random() < MODEL_SHARE:
                with tempfile.TemporaryDirectory() as directory:
                    family = draw.choice(FAMILIES)
                    counts[f"batches of {family}"] += answer_batch(draw, family, Path(directory))
            else:
                call = draw.choice(Kernels(state.library, draw).calls)
                call()
                counts[call.__name__] += 1
            seed += 1
    print(f"{asked.level}: {dict(counts)}")


if __name__ == "__main__":
    main()
