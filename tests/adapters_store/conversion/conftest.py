"""Checkpoints of .bin files, as torch writes them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

Pickled = Callable[..., Path]


@pytest.fixture
def pickled(tmp_path: Path) -> Pickled:
    """`pickled(directory, dtype=…, shards=…, change=…, **config)`: the checkpoint in `directory` with its tensors as
    `pytorch_model.bin` or as shards; `change` replaces tensors, and drops those that are None."""

    def save(directory, *, dtype=torch.float32, shards=1, change=None, **config):
        new = tmp_path / "published"
        shutil.copytree(directory, new)
        (new / "generation_config.json").write_text("{}")
        settings = json.loads((new / "config.json").read_text())
        (new / "config.json").write_text(json.dumps(settings | config))
        (new / "model.safetensors").unlink()
        weights = load_file(directory / "model.safetensors")
        state = {name: weight.to(dtype) for name, weight in weights.items()} | dict(change or {})
        _save(new, {name: weight for name, weight in state.items() if weight is not None}, shards)
        return new

    return save


def _save(folder: Path, state: dict[str, Any], shards: int) -> None:
    if shards == 1:
        torch.save(state, folder / "pytorch_model.bin")
        return
    shard_of = {name: f"pytorch_model-{i % shards + 1:05}-of-{shards:05}.bin" for i, name in enumerate(sorted(state))}
    for shard in set(shard_of.values()):
        torch.save({name: state[name] for name in state if shard_of[name] == shard}, folder / shard)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shard_of}))
