"""Fixtures of the backbone's suites: edited checkpoint directories."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from peltier_backbone.checkpoint.checkpoint import read_tensors
from safetensors.torch import save_file
from torch import Tensor

Edit = Callable[[dict[str, Tensor]], dict[str, Tensor]]


@pytest.fixture
def edited(bert_directory: Path, tmp_path: Path) -> Callable[..., Path]:
    """`edited(change, source=…)`: a copy of a checkpoint directory whose tensors went through `change`."""

    def make(change: Edit, source: Path = bert_directory) -> Path:
        directory = tmp_path / "edited"
        shutil.copytree(source, directory)
        tensors = {name: tensor.contiguous() for name, tensor in change(read_tensors(source)).items()}
        save_file(tensors, directory / "model.safetensors")
        return directory

    return make
