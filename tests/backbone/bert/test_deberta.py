"""DeBERTa-v2 and v3: every kind of configuration that is served, compared with transformers."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_backbone.attention.adaptation import NO_ADAPTATION
from peltier_backbone.backbone import Backbone
from peltier_backbone.bert.positions import distance_rows
from peltier_backbone.errors import BackboneError
from peltier_backbone.load import load_backbone
from peltier_backbone.native.choice import kernels_in_use
from peltier_backbone.text.packing import Encoded
from safetensors.torch import load_file, save_file
from transformers import DebertaV2Config, DebertaV2Model
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from tests.support.parity import distance, draw_rows, ours, save, theirs

LENGTHS = (1, 2, 17, 40, 3)
PUBLISHED: dict[str, Any] = {
    "relative_attention": True, "position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True,
    "pos_att_type": "p2c|c2p", "position_biased_input": False, "type_vocab_size": 0,
}  # fmt: skip
OTHERS: dict[str, dict[str, Any]] = {
    "published": {},
    "own maps of distances": {"share_att_key": False},
    "one kind of score": {"share_att_key": False, "pos_att_type": ["c2p"]},
    "the other kind": {"pos_att_type": "p2c", "norm_rel_ebd": "none"},
    "no buckets, short reach": {"position_buckets": -1, "max_relative_positions": 12},
    "absolute positions and types": {"position_biased_input": True, "type_vocab_size": 2},
    "narrow embeddings": {"embedding_size": 20},
    "a convolution": {"conv_kernel_size": 3, "conv_act": "gelu"},
    "a wide convolution": {"conv_kernel_size": 5},
}


def _save(changes: dict[str, Any], directory: Path, tokenizer: Path) -> DebertaV2Model:
    torch.manual_seed(0)
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 80}
    config = DebertaV2Config(
        **{"vocab_size": 300, "max_position_embeddings": 40, "initializer_range": 0.3} | sizes | PUBLISHED | changes
    )
    model = DebertaV2Model(config).eval()
    save(model, directory, tokenizer)
    return model


@pytest.mark.parametrize("kernels", ["auto", "torch"])
@pytest.mark.parametrize("kind", OTHERS)
@torch.inference_mode()
def test_the_forward_is_that_of_transformers(kind: str, kernels: str, tmp_path: Path, deberta_directory: Path):
    """The last hidden states of rows of any length, to 1e-4."""
    model = _save(OTHERS[kind], tmp_path, deberta_directory)
    with kernels_in_use(kernels):
        backbone = load_backbone(str(tmp_path))
        rows = draw_rows(LENGTHS, 300, typed=backbone.config.typed)
        assert distance(ours(backbone, rows), theirs(model, rows)) < 1e-4


@pytest.mark.parametrize("kernels", ["auto", "torch"])
@torch.inference_mode()
def test_distances_reach_over_many_keys(kernels: str, tmp_path: Path, deberta_directory: Path):
    """A row of more tokens than the kernels attend to at a time."""
    changes = {"max_position_embeddings": 700, "position_buckets": 64, "num_hidden_layers": 1}
    model = _save(changes, tmp_path, deberta_directory)
    ids = tuple(7 + at * at % 290 for at in range(700))
    with kernels_in_use(kernels):
        backbone = load_backbone(str(tmp_path))
        rows = [Encoded(ids, (0,) * len(ids))]
        assert distance(ours(backbone, rows), theirs(model, rows)) < 1e-4


@pytest.mark.parametrize("kernels", ["auto", "torch"])
@torch.inference_mode()
def test_a_convolution_reads_no_pads(kernels: str, tmp_path: Path, deberta_directory: Path):
    """The states of a row with pads are those of transformers with a mask; at pads they are no promise."""
    model = _save(OTHERS["a convolution"], tmp_path, deberta_directory)
    row, pads = Encoded(tuple(range(7, 16)), (0,) * 9), 4
    padded = row.padded(len(row) + pads, 0)
    with kernels_in_use(kernels):
        backbone = load_backbone(str(tmp_path))
        found = backbone.encode(backbone.pack([padded, row]))
    mask = torch.tensor([[1] * len(row) + [0] * pads])
    expected = model(torch.tensor([padded.ids]), attention_mask=mask).last_hidden_state[0, : len(row)]
    for first in (0, len(padded)):
        torch.testing.assert_close(found[first : first + len(row)], expected, atol=1e-4, rtol=0)


@torch.inference_mode()
def test_a_convolution_follows_the_first_layer(deberta_v2: Backbone):
    """Layers in two runs are those of one, wherever the runs meet: batches and trainings share the lower ones."""
    packed = deberta_v2.pack([Encoded(tuple(range(7, 7 + length)), (0,) * length) for length in (1, 5, 9)])
    model = deberta_v2.bert
    embedded, whole = model.embed(packed, NO_ADAPTATION), model(packed)
    for meeting in (0, 1, 2):
        lower = model.advance(embedded, packed, NO_ADAPTATION, range(meeting))
        assert torch.equal(model.advance(lower, packed, NO_ADAPTATION, range(meeting, 3)), whole)


@pytest.mark.parametrize("name", ["conv.weight", "conv.bias", "LayerNorm.weight"])
def test_the_fingerprint_has_the_convolution(name: str, deberta_v2: Backbone, tmp_path: Path):
    """Another value of its weights is another backbone, in the file and in memory."""
    shutil.copytree(deberta_v2.name, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    tensors[f"encoder.conv.{name}"] += 0.5
    save_file(tensors, file)
    other = load_backbone(str(tmp_path))
    assert other.fingerprint != deberta_v2.fingerprint
    assert other.weights_digest() != deberta_v2.weights_digest()


@pytest.mark.parametrize(("buckets", "reach"), [(256, 512), (8, 40), (32, 300)])
def test_the_rows_of_distances_are_those_of_transformers(buckets: int, reach: int):
    """For every distance up to the reach."""
    distances = torch.arange(1 - reach, reach)
    expected = make_log_bucket_position(distances, buckets, reach).long() + buckets
    assert torch.equal(distance_rows(reach, buckets, reach), expected.clamp(0, 2 * buckets - 1))


def test_tensors_of_pretraining_are_left_out_and_others_refused(tmp_path: Path, deberta_directory: Path):
    """Published checkpoints have absolute positions that the encoder does not read; a classifier's pooler is no part of
    it."""
    _save({}, tmp_path, deberta_directory)
    file = tmp_path / "model.safetensors"
    tensors = {f"deberta.{name}": tensor for name, tensor in load_file(file).items()}
    more = {
        "deberta.embeddings.position_embeddings.weight": torch.ones(40, 48),
        "lm_predictions.lm_head.bias": torch.ones(300),
        "mask_predictions.dense.bias": torch.ones(48),
    }
    fingerprint = load_backbone(str(tmp_path)).fingerprint
    save_file(tensors | more, file)
    assert load_backbone(str(tmp_path)).fingerprint == fingerprint
    save_file(tensors | {"pooler.dense.weight": torch.ones(48, 48)}, file)
    with pytest.raises(BackboneError, match=r"1 tensors have no place in a deberta-v2 encoder, such as 'pooler.dense"):
        load_backbone(str(tmp_path))
