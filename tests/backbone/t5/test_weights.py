"""Loading T5 checkpoints: every tensor is used, is a known copy of another, or is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint import checkpoint
from peltier_backbone.checkpoint.checkpoint import read_tensors
from peltier_backbone.checkpoint.config import T5Config
from peltier_backbone.checkpoint.fingerprint import fingerprint
from peltier_backbone.checkpoint.weights import Weights
from peltier_backbone.errors import BackboneError
from peltier_backbone.linear.linear import PlainLinear
from peltier_backbone.load import load_backbone
from peltier_backbone.t5.weights import build_t5, canonical_t5, t5_weights
from safetensors.torch import save_file
from torch import Tensor
from transformers import MT5ForConditionalGeneration, T5ForConditionalGeneration
from transformers import T5Config as HfConfig

Tensors = dict[str, Tensor]
Edited = Callable[..., Path]
ALIASES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
CROSS_BIAS = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
WO = "encoder.block.1.layer.1.DenseReluDense.wo.weight"


def _same(one: Backbone, other: Backbone) -> bool:
    return (one.fingerprint, one.weights_digest()) == (other.fingerprint, other.weights_digest())


def _aliased(tensors: Tensors) -> Tensors:
    return tensors | {alias: tensors["shared.weight"].clone() for alias in ALIASES}


def _only_aliased(tensors: Tensors) -> Tensors:
    return {name: tensor for name, tensor in _aliased(tensors).items() if name != "shared.weight"}


@pytest.mark.parametrize(
    "change",
    [_aliased, _only_aliased, lambda tensors: tensors | {CROSS_BIAS: torch.ones(32, 4)}],
    ids=["aliases", "no-shared", "unread-table"],
)
def test_the_same_model_under_other_names(
    change: Callable[[Tensors], Tensors], t5: Backbone, t5_directory: Path, edited: Edited
):
    """Copies of the embedding and the table that no T5 reads change neither the weights nor the fingerprint."""
    assert _same(load_backbone(str(edited(change, t5_directory))), t5)


def test_a_sharded_checkpoint_is_the_same_backbone(t5: Backbone, t5_directory: Path, tmp_path: Path):
    """As transformers shards large models."""
    model = T5ForConditionalGeneration.from_pretrained(t5_directory)
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    shutil.copy(t5_directory / "tokenizer.json", tmp_path)
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    assert _same(load_backbone(str(tmp_path)), t5)


def test_a_hub_snapshot_is_the_same_backbone(
    t5: Backbone, t5_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The hub client lays a model out as links into a store of blobs; one name of it is enough."""
    snapshot, asked = tmp_path / "models--me--tiny-t5" / "snapshots" / "0123", []
    snapshot.mkdir(parents=True)
    (blobs := tmp_path / "models--me--tiny-t5" / "blobs").mkdir()
    for number, file in enumerate(sorted(t5_directory.iterdir())):
        shutil.copy(file, blobs / str(number))
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")

    def download(name: str, *, allow_patterns: list[str]) -> str:
        asked.append((name, "spiece.model" in allow_patterns))
        return str(snapshot)

    monkeypatch.setattr(checkpoint, "snapshot_download", download)
    assert _same(load_backbone("me/tiny-t5"), t5)
    assert asked == [("me/tiny-t5", True)]


def _without(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {key: tensor for key, tensor in tensors.items() if key != name}


def _other_head(tensors: Tensors) -> Tensors:
    return tensors | {"lm_head.weight": tensors["shared.weight"] + 1}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_without(WO), f"tensor '{WO}' is missing"),
        (_without("shared.weight"), "tensor 'shared.weight' is missing"),
        (_without("decoder.final_layer_norm.weight"), "'decoder.final_layer_norm.weight' is missing"),
        (lambda tensors: tensors | {WO: torch.ones(48, 87)}, "has shape (48, 87), the configuration says (48, 88)"),
        (lambda tensors: tensors | {"classification_head.bias": torch.ones(2)}, "such as 'classification_head.bias'"),
        (lambda tensors: tensors | {WO.replace("wo", "wi_0"): torch.ones(88, 48)}, "1 tensors have no place in a t5"),
        (_other_head, "tensor 'lm_head.weight' differs from 'shared.weight'"),
    ],
    ids=["missing", "no-embedding", "no-norm", "shape", "head", "gated", "untied"],
)  # fmt: skip
def test_every_tensor_is_consumed_or_refused(
    change: Callable[[Tensors], Tensors], words: str, t5_directory: Path, edited: Edited
):
    """A checkpoint that does not fit its configuration is refused by the tensor's name."""
    with pytest.raises(BackboneError) as caught:
        load_backbone(str(edited(change, t5_directory)))
    assert words in str(caught.value)


def test_an_untied_model_needs_its_head(t5_gated_directory: Path, edited: Edited):
    """v1.1 has an output layer of its own; nothing stands in for it."""
    with pytest.raises(BackboneError, match=r"tensor 'lm_head\.weight' is missing"):
        load_backbone(str(edited(_without("lm_head.weight"), t5_gated_directory)))


def test_an_mt5_without_its_own_head_has_the_embedding(mt5_directory: Path, edited: Edited):
    """transformers 5 ties it then, without a scale, although the published configurations say that it is not tied."""
    directory = edited(_without("lm_head.weight"), mt5_directory)
    model = MT5ForConditionalGeneration.from_pretrained(directory).eval()
    backbone = load_backbone(str(directory))
    hidden = torch.randn(3, 48, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        torch.testing.assert_close(backbone.t5.logits(hidden), model.lm_head(hidden), atol=1e-4, rtol=0)


def test_a_v1_1_config_as_published_loads(t5_gated: Backbone, t5_gated_directory: Path, edited: Edited):
    """`tie_word_embeddings: false` says what transformers 5 writes as `scale_decoder_outputs: false`."""
    directory = edited(lambda tensors: tensors, t5_gated_directory)
    raw = json.loads((directory / "config.json").read_text())
    del raw["scale_decoder_outputs"]
    (directory / "config.json").write_text(json.dumps({**raw, "tie_word_embeddings": False}))
    assert _same(load_backbone(str(directory)), t5_gated)


def test_a_padded_vocabulary_is_cropped(t5_directory: Path, tmp_path: Path):
    """32,128 rows become 32,100: the others answer to no token; the logits of the kept ones stay the same."""
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    model = T5ForConditionalGeneration(HfConfig(vocab_size=32128, decoder_start_token_id=0, **sizes))
    model.save_pretrained(tmp_path)
    shutil.copy(t5_directory / "tokenizer.json", tmp_path)
    backbone = load_backbone(str(tmp_path))
    assert backbone.config.vocab_size == len(backbone.t5.embedding.weight()) == 32100
    hidden = torch.randn(3, 8)
    expected = (hidden * 8**-0.5) @ model.shared.weight.detach()[:32100].t()
    torch.testing.assert_close(backbone.t5.logits(hidden), expected, atol=1e-5, rtol=1e-5)


def test_a_larger_tokenizer_is_refused(t5_directory: Path, tmp_path: Path):
    """Ids without an embedding would fail at the first request that uses them."""
    directory = tmp_path / "small"
    shutil.copytree(t5_directory, directory)
    raw = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**raw, "vocab_size": 50}))
    tensors = read_tensors(directory)
    save_file({**tensors, "shared.weight": tensors["shared.weight"][:50].contiguous()}, directory / "model.safetensors")
    with pytest.raises(BackboneError, match="the tokenizer has 58 entries, the model embeds 50"):
        load_backbone(str(directory))


@pytest.mark.parametrize("name", ["t5", "t5_gated"])
def test_parameters_are_counted_once(name: str, request: pytest.FixtureRequest):
    """As transformers counts them."""
    model = T5ForConditionalGeneration.from_pretrained(request.getfixturevalue(f"{name}_directory"))
    assert request.getfixturevalue(name).config.num_parameters == sum(weight.numel() for weight in model.parameters())


def test_bfloat16_keeps_the_identity(t5: Backbone, t5_directory: Path):
    """The fingerprint is that of the checkpoint for any compute dtype; the weights in memory differ."""
    half = load_backbone(str(t5_directory), dtype="bfloat16")
    assert half.fingerprint == t5.fingerprint
    assert half.weights_digest() != t5.weights_digest()


def _digests(config: T5Config, tensors: Tensors, directory: Path) -> tuple[str, str]:
    """Of the checkpoint, and of the model in memory."""
    kept = canonical_t5(tensors, config, directory)
    model = build_t5(config, Weights(dict(kept), directory), PlainLinear)
    return fingerprint(config, kept), fingerprint(config, dict(t5_weights(model)))


def test_every_weight_is_in_the_digest(t5_gated: Backbone, t5_gated_directory: Path):
    """One changed value of any tensor shows in memory as it does in the fingerprint."""
    config, tensors = t5_gated.t5.config, read_tensors(t5_gated_directory)
    own = _digests(config, tensors, t5_gated_directory)
    assert own == (t5_gated.fingerprint, t5_gated.weights_digest())
    for name, tensor in tensors.items():
        changed = tensor.clone()
        changed.view(-1)[0] += 1.0
        found = _digests(config, tensors | {name: changed}, t5_gated_directory)
        assert all(one != other for one, other in zip(found, own, strict=True)), name


@pytest.mark.parametrize(("name", "wrong"), [("t5", "bert"), ("bert", "t5")])
def test_a_model_is_what_its_configuration_says(name: str, wrong: str, request: pytest.FixtureRequest):
    """`config.generates` tells which of the two it is."""
    backbone: Backbone = request.getfixturevalue(name)
    assert backbone.config.generates == (name == "t5")
    assert getattr(backbone, name) is backbone.model
    with pytest.raises(AssertionError):
        getattr(backbone, wrong)
