"""Post-norm encoders with rotary positions, compared with transformers."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from peltier_backbone.errors import BackboneError
from peltier_backbone.load import load_backbone
from peltier_backbone.native.choice import kernels_in_use
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from tests.support.parity import distance, draw_rows, ours, theirs

LENGTHS = (1, 2, 17, 40, 3)
FAMILIES = ("nomic_bert", "gte", "jina")


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_the_forward_is_that_of_transformers(family: str, tmp_path: Path, request: pytest.FixtureRequest):
    """The last hidden states of rows of any length, to 1e-4, with the native kernels and in torch, of the published
    names of tensors and of those of transformers; both files are one backbone. Angles are divided by a factor."""
    folder: Path = request.getfixturevalue(f"{family}_directory")
    shutil.copytree(folder, tmp_path / "published")
    raw = json.loads((folder / "config.json").read_text())
    raw["rope_parameters"] |= {"rope_type": "linear", "factor": 1.5}
    (tmp_path / "published" / "config.json").write_text(json.dumps(raw))
    model = AutoModel.from_pretrained(tmp_path / "published").eval()
    model.save_pretrained(tmp_path / "own", save_original_format=False)
    shutil.copy(folder / "tokenizer.json", tmp_path / "own")
    names = [set(load_file(tmp_path / kind / "model.safetensors")) for kind in ("published", "own")]
    assert any("Wqkv" in name or "qkv_proj" in name for name in names[0] ^ names[1])
    fingerprints = set()
    for kind, kernels in (("published", "auto"), ("own", "torch")):
        with kernels_in_use(kernels):
            backbone = load_backbone(str(tmp_path / kind))
            rows = draw_rows(LENGTHS, 60, typed=backbone.config.typed)
            assert distance(ours(backbone, rows), theirs(model, rows)) < 1e-4
        fingerprints.add(backbone.fingerprint)
    assert len(fingerprints) == 1


def test_a_map_whose_parts_are_there_twice_is_refused(tmp_path: Path, nomic_bert_directory: Path):
    """Beside queries, keys and values in one tensor."""
    shutil.copytree(nomic_bert_directory, tmp_path / "twice")
    file = tmp_path / "twice" / "model.safetensors"
    save_file(load_file(file) | {"layers.0.self_attn.k_proj.weight": torch.ones(48, 48)}, file)
    with pytest.raises(BackboneError, match=r"tensor '.*' is there twice"):
        load_backbone(str(tmp_path / "twice"))


def test_the_parts_of_a_tensor_have_the_configurations_sizes(tmp_path: Path, nomic_bert_directory: Path):
    """A tensor of another size is refused by the name of its part."""
    shutil.copytree(nomic_bert_directory, tmp_path / "odd")
    file = tmp_path / "odd" / "model.safetensors"
    save_file(load_file(file) | {"encoder.layers.0.attn.Wqkv.weight": torch.ones(145, 48)}, file)
    with pytest.raises(BackboneError, match=r"'encoder.layer.0.attention.self.query.weight' has shape \(49, 48\)"):
        load_backbone(str(tmp_path / "odd"))
