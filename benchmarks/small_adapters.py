"""How many bytes is an adapter in its file, in the store and on the device, and what would a million of them take?

    .venv/bin/python benchmarks/small_adapters.py [--rounds 20]

One adapter of each kind for MiniLM and two labels, with golden examples as `peltier train` writes them: LoRA, VeRA
whose matrices are random and shared, VeRA with the inner factors alone, and IA3. The columns are the bytes of the
trained tensors without the head, of the head, and of the whole file, which a store does not compress; the bytes of a
resident adapter on the device; the CPU milliseconds of a load from the file; and the gigabytes of a million files.

Small: --rounds 1
"""

import statistics
from functools import partial

import torch
from common.adapters import make_bytes
from common.harness import Table, create_parser, time_by_turns
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.residency.bank import Banks
from peltier_backbone.load import load_backbone

# The head is linear on the mean of the tokens.
HEAD = {"pooling": "mean", "head_projection": "true"}
KINDS: dict[str, tuple[str, dict[str, str]]] = {
    "lora, rank 8": ("lora", {}),
    "vera, rank 32": ("vera", {}),
    "vera, rank 32, inner alone": ("vera", {"outer": "false"}),
    "vera, rank 8, inner alone": ("vera", {"outer": "false", "rank": "8"}),
    "ia3": ("ia3", {}),
}


def main() -> None:
    options = create_parser(__doc__, rounds=20).parse_args()
    torch.set_num_threads(1)
    backbone = load_backbone("minilm")
    files = {name: make_bytes(backbone, preset, 0, **HEAD, **own) for name, (preset, own) in KINDS.items()}
    banks = Banks(backbone)
    loads = {name: partial(lambda data: banks.add(read_artifact(data, backbone)), data) for name, data in files.items()}
    found = time_by_turns(loads, options.rounds)
    table = Table("", "body, bytes", "head, bytes", "file", "device", "load ms", "a million, GB")
    for name, data in files.items():
        artifact = read_artifact(data, backbone)
        sizes = {key: tensor.nbytes for key, tensor in artifact.tensors.items()}
        head = sum(size for key, size in sizes.items() if key.startswith("head."))
        table.row(
            name, f"{sum(sizes.values()) - head:,}", f"{head:,}", f"{len(data):,}", f"{banks.add(artifact).nbytes:,}",
            f"{1e3 * statistics.median(found[name]):.2f}", f"{len(data) * 1e6 / 1e9:,.1f}",
        )  # fmt: skip


if __name__ == "__main__":
    main()
