"""Time and memory of a training step on T5-base's shapes: the methods of Table 3 of Compacter (2021).

    .venv/bin/python benchmarks/training_cost.py [--rows 4] [--tokens 128] [--rounds 2] [--layers 12]

The backbone has random weights of T5-base's sizes (12 + 12 blocks, hidden size 768); presets have their defaults. With
`--layers` it has fewer blocks, but six at least, because AdapterDrop leaves the first five alone. Runs are in float32,
on one thread, without dropout. Time is the CPU time of one step (forward, backward, AdamW), as the median of the ratios
to full fine-tuning; methods take turns. Memory is counted, not sampled: `activations` is the memory per example that a
step keeps for its backward pass, without weights; `training state` is the gradients and AdamW's two moments. Full
fine-tuning and SAID use transformers' model, which pads; all rows are equally long, so there is no padding.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
from common.adapters import create_trained
from common.harness import Table, by_turns, create_parser, median_ratio
from peltier_adapters.presets.baselines import BASELINES
from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.targets import Targets
from peltier_backbone.load import load_backbone
from peltier_backbone.text.packing import Encoded
from peltier_training.baselines.tuned_model import TunedT5, create_body
from peltier_training.data.dataset import IGNORED, TextRow, pad_texts
from peltier_training.models.model import TextAdapter
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import T5Config, T5ForConditionalGeneration

TOKENIZER = Path(__file__).parents[1] / "examples/backbones/t5-mini/tokenizer.json"
TARGET = (10, 11, 1)
# The method's name in Table 3, and ours.
METHODS = {
    "T5-base, full": "full",
    "Adapter (Houlsby)": "houlsby",
    "Pfeiffer, attention": "pfeiffer-attention",
    "AdapterDrop": "adapterdrop",
    "LowRank": "lowrank",
    "Prompt tuning": "prompt-r",
    "Intrinsic-SAID": "intrinsic-said",
    "BitFit": "bitfit",
    "PHM": "phm",
    "Compacter": "compacter",
    "Compacter++": "compacter++",
}


def write_backbone(directory: Path, num_layers: int) -> None:
    """A checkpoint of T5-base's sizes, but for the number of its blocks, with random weights."""
    config = T5Config(
        vocab_size=32128, d_model=768, d_kv=64, d_ff=3072, num_layers=num_layers, num_heads=12, decoder_start_token_id=0
    )
    T5ForConditionalGeneration(config).save_pretrained(directory)
    copy(TOKENIZER, directory)


class TrainingBatch:
    """Rows of equally many tokens with a short target each."""

    def __init__(self, num_rows: int, num_tokens: int) -> None:
        ids = torch.randint(10, 8000, (num_rows, num_tokens), generator=torch.Generator().manual_seed(0)).tolist()
        self.rows = [TextRow(Encoded(tuple(row), (0,) * num_tokens), (0, *TARGET[:-1]), TARGET) for row in ids]
        self.labels = torch.tensor([token for row in self.rows for token in row.labels])


def adapter_step(backbone: Backbone, preset: str, batch: TrainingBatch) -> tuple[nn.Module, Callable[[], Tensor]]:
    """The trainable adapter, and a forward pass to its loss."""
    model = create_trained(TextAdapter, backbone, preset)
    soft = next((part.length for part in model.parts if part.kind == "prompt"), 0)

    def loss() -> Tensor:
        rows = [Encoded((0,) * soft + row.encoded.ids, (0,) * soft + row.encoded.types) for row in batch.rows]
        targets = Targets.create([row.read for row in batch.rows], None, backbone.device)
        return F.cross_entropy(model(backbone.pack(rows), targets), batch.labels)

    return model, loss


def baseline_step(
    directory: Path, backbone: Backbone, preset: str, batch: TrainingBatch
) -> tuple[nn.Module, Callable[[], Tensor]]:
    """The whole model in training, and a forward pass to its loss."""
    t5 = T5ForConditionalGeneration.from_pretrained(directory, dtype=torch.float32, dropout_rate=0.0)
    model = TunedT5(create_body(t5, BASELINES[preset].settings({}, backbone.config), seed=0)).train()
    padded = pad_texts(batch.rows, backbone.config)
    labels = padded["label_grid"][padded["label_grid"] != IGNORED]
    return model, lambda: F.cross_entropy(model(**padded), labels)


@contextmanager
def kept_bytes(weights: set[int]) -> Iterator[dict[int, int]]:
    """Bytes of each piece of memory that is kept for a backward pass and is not of `weights`, by its address."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield kept


class TrainedMethod:
    """One method in training."""

    def __init__(self, model: nn.Module, loss: Callable[[], Tensor]) -> None:
        self._parameters = [one for one in model.parameters() if one.requires_grad]
        self._weights = {one.untyped_storage().data_ptr() for one in (*model.parameters(), *model.buffers())}
        self._loss = loss
        self._optimizer = torch.optim.AdamW(self._parameters, lr=1e-4, fused=True)
        self.num_parameters = sum(one.numel() for one in self._parameters)

    def step(self) -> float:
        """CPU seconds of one step."""
        start = time.process_time()
        self._loss().backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        return time.process_time() - start

    def activations(self) -> int:
        """Bytes that a pass keeps."""
        with kept_bytes(self._weights) as kept:
            loss = self._loss()
        del loss
        return sum(kept.values())


class Measured(NamedTuple):
    """A method, the bytes that a step keeps, and the seconds of a step in each round."""

    method: TrainedMethod
    kept_bytes: int
    seconds: list[float]


def measure(directory: Path, batch: TrainingBatch, rounds: int) -> dict[str, Measured]:
    """Every method, by turns."""
    backbone = load_backbone(str(directory))
    found: dict[str, tuple[TrainedMethod, int]] = {}
    for name, preset in METHODS.items():
        made = (
            baseline_step(directory, backbone, preset, batch)
            if preset in BASELINES
            else adapter_step(backbone, preset, batch)
        )
        method = TrainedMethod(*made)
        method.step()
        found[name] = method, method.activations()
        gc.collect()
    steps = by_turns({name: method.step for name, (method, _) in found.items()}, rounds, warm_up=False)
    return {name: Measured(*one, steps[name]) for name, one in found.items()}


def report(found: dict[str, Measured], num_rows: int, title: str) -> None:
    """Prints one row per method."""
    full = found["T5-base, full"]
    print(title)
    table = Table("", "parameters", "activations, MB an example", "x full", "training state, MB", "s a step", "x full")
    for name, (method, kept, seconds) in found.items():
        table.row(
            name, f"{method.num_parameters / full.method.num_parameters:.3%}", f"{kept / num_rows / 1e6:.1f}",
            f"{kept / full.kept_bytes:.2f}", f"{12 * method.num_parameters / 1e6:,.1f}",
            f"{statistics.median(seconds):.2f}", f"{median_ratio(seconds, full.seconds):.2f}",
        )  # fmt: skip


def main() -> None:
    options = create_parser(__doc__, rows=4, tokens=128, rounds=2, layers=12).parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with TemporaryDirectory() as folder:
        write_backbone(Path(folder), options.layers)
        found = measure(Path(folder), TrainingBatch(options.rows, options.tokens), options.rounds)
    size = f"{options.rows} rows of {options.tokens} tokens, {options.layers} + {options.layers} blocks"
    report(found, options.rows, f"T5-base's shapes, float32, {size}, one thread")


if __name__ == "__main__":
    main()
