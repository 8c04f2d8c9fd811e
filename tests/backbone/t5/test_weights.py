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
from peltier_backbone.decoding.cache import Cache
from peltier_backbone.errors import BackboneError
from peltier_backbone.linear.linear import PlainLinear
from peltier_backbone.load import load_backbone, read_fingerprint
from peltier_backbone.t5.weights import build_t5, canonical_t5, t5_weights
from safetensors.torch import save_file
from tokenizers import Tokenizer, models
from torch import Tensor
from transformers import (
    AutoTokenizer,
    MT5ForConditionalGeneration,
    PreTrainedTokenizerFast,
    T5ForConditionalGeneration,
)
from transformers import T5Config as HfConfig

from tests.support.decoder import arrange
from tests.support.small_tokenizers import unigram

Tensors = dict[str, Tensor]
Edited = Callable[..., Path]


def _same(one: Backbone, other: Backbone) -> bool:
    return (one.fingerprint, one.weights_digest()) == (other.fingerprint, other.weights_digest())


def test_a_hub_snapshot_is_the_same_backbone(t5, t5_directory, tmp_path, monkeypatch):
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


@pytest.fixture(scope="module")
def with_tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A T5 of 32,128 rows whose tokenizer has the 32,100 published entries and three that its user added."""
    directory = tmp_path_factory.mktemp("added")
    fast = unigram()
    pieces = [(piece, score) for piece, score in json.loads(fast.to_str())["model"]["vocab"]]
    pieces += [(f"▁{number}", -9.0) for number in range(32000 - len(pieces))]
    fast.model = models.Unigram(pieces, 2)
    fast.add_special_tokens([f"<extra_id_{number}>" for number in range(100)])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
    assert len(wrapped) == 32100
    wrapped.add_tokens(["{", "}", "\n"])
    wrapped.save_pretrained(directory)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 2, "num_heads": 2}
    torch.manual_seed(0)
    T5ForConditionalGeneration(HfConfig(vocab_size=32128, decoder_start_token_id=0, **sizes)).save_pretrained(directory)
    return directory


@torch.inference_mode()
def test_tokens_added_among_the_last_rows_are_those_of_transformers(with_tokens: Path):
    """They are read from a text, have logits, and are written; the rows behind them answer to no token."""
    backbone, theirs = load_backbone(str(with_tokens)), AutoTokenizer.from_pretrained(with_tokens)
    model = T5ForConditionalGeneration.from_pretrained(with_tokens).eval()
    row = backbone.tokenizer.encode('{ "a": a good film }\n bad')
    assert row.ids == tuple(theirs('{ "a": a good film }\n bad')["input_ids"])
    assert {32100, 32101, 32102} <= set(row.ids)
    assert backbone.tokenizer.decode(row.ids) == theirs.decode(row.ids, skip_special_tokens=True)
    targets = [0, 32102, 5, 32100, 32101]
    packed = backbone.pack([row])
    cache = Cache(backbone.t5.config, backbone.device, backbone.dtype)
    ((slot,),) = cache.join(backbone.t5.project_kv(packed, backbone.encode(packed)))
    step = arrange(backbone, [slot], cache)
    found = torch.cat([backbone.t5.logits(step(torch.tensor([token]))) for token in targets])
    logits = model(input_ids=torch.tensor([row.ids]), decoder_input_ids=torch.tensor([targets])).logits[0]
    assert found.shape == (5, 32103)
    torch.testing.assert_close(found, logits[:, :32103], atol=1e-5, rtol=1e-5)


def test_a_fingerprint_counts_the_tokens_that_a_user_added(with_tokens: Path, tmp_path: Path):
    """An adapter fits the vocabulary that it was trained with, also if the weights of two checkpoints are equal."""
    assert read_fingerprint(str(with_tokens)) == load_backbone(str(with_tokens)).fingerprint
    plain = shutil.copytree(with_tokens, tmp_path / "plain")
    fast = Tokenizer.from_file(str(plain / "tokenizer.json"))
    state = json.loads(fast.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["id"] < 32100]
    (plain / "tokenizer.json").write_text(json.dumps(state))
    assert load_backbone(str(plain)).config.vocab_size == 32100
    assert read_fingerprint(str(plain)) != read_fingerprint(str(with_tokens))


def test_more_tokens_than_rows_are_refused(with_tokens: Path, tmp_path: Path):
    """By the number of rows that the checkpoint has, padding included."""
    directory = shutil.copytree(with_tokens, tmp_path / "larger")
    fast = Tokenizer.from_file(str(directory / "tokenizer.json"))
    fast.add_tokens([f"word{number}" for number in range(26)])
    fast.save(str(directory / "tokenizer.json"))
    with pytest.raises(BackboneError, match="the tokenizer has 32129 entries, the model embeds 32128"):
        load_backbone(str(directory))


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
