"""From a checkpoint directory to a frozen model: every tensor is used, is a known copy of another, or is refused."""

import gzip
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peltier_backbone import load
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint import checkpoint
from peltier_backbone.checkpoint.checkpoint import find_checkpoint, read_tensors
from peltier_backbone.checkpoint.config import T5Config
from peltier_backbone.checkpoint.fingerprint import fingerprint
from peltier_backbone.checkpoint.weights import Weights
from peltier_backbone.decoding.cache import Cache
from peltier_backbone.errors import BackboneError
from peltier_backbone.linear.linear import PlainLinear
from peltier_backbone.load import load_backbone, read_fingerprint, resolve_device
from peltier_backbone.model import architecture
from peltier_backbone.native.choice import kernels_in_use
from peltier_backbone.t5.weights import build_t5, canonical_t5, t5_weights
from safetensors.torch import save_file
from tokenizers import Tokenizer, models
from torch import Tensor
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
    MT5ForConditionalGeneration,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    T5ForConditionalGeneration,
)
from transformers import T5Config as HfConfig

from tests.support.decoder import arrange
from tests.support.levels import LEVELS
from tests.support.small_tokenizers import unigram

Tensors = dict[str, Tensor]
Edited = Callable[..., Path]
_QUESTIONS = Path(__file__).parents[2] / "examples/data/banking77/validation.jsonl.gz"
QUERY = "encoder.layer.1.attention.self.query.weight"
ALIASES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
CROSS_BIAS = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
WO = "encoder.block.1.layer.1.DenseReluDense.wo.weight"


def _without(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {key: tensor for key, tensor in tensors.items() if key != name}


def _with(name: str, *shape: int) -> Callable[[Tensors], Tensors]:
    return lambda tensors: tensors | {name: torch.ones(shape)}


def _renamed(change: Callable[[str], str]) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {change(name): tensor for name, tensor in tensors.items()}


def _old_names(name: str) -> str:
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


def _same(one: Backbone, other: Backbone) -> bool:
    return (one.fingerprint, one.weights_digest()) == (other.fingerprint, other.weights_digest())


def _aliased(tensors: Tensors) -> Tensors:
    return tensors | {alias: tensors["shared.weight"].clone() for alias in ALIASES}


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("bert", _renamed(lambda name: f"bert.{name}")),
        ("bert", _renamed(_old_names)),
        ("bert", lambda tensors: tensors | {"embeddings.position_ids": torch.arange(96)[None]}),
        ("bert", lambda tensors: _renamed("bert.{}".format)(tensors) | {"cls.predictions.bias": torch.ones(5)}),
        ("t5", _aliased),
        ("t5", lambda tensors: _without("shared.weight")(_aliased(tensors))),
        ("t5", lambda tensors: tensors | {CROSS_BIAS: torch.ones(32, 4)}),
    ],
    ids=[
        "prefixed", "gamma-beta", "position-ids", "pretraining-head", "aliases", "no-shared", "unread-table",
    ],
)  # fmt: skip
def test_the_same_model_under_other_names(family, change, request, edited):
    """How a checkpoint spells its tensors, and copies of them, change neither the weights nor the fingerprint."""
    directory = edited(change, request.getfixturevalue(f"{family}_directory"))
    assert _same(load_backbone(str(directory)), request.getfixturevalue(family))


@pytest.mark.parametrize(("family", "model"), [("bert", BertModel), ("t5", T5ForConditionalGeneration)])
def test_a_sharded_checkpoint_is_the_same_backbone(family, model, request, tmp_path):
    """As transformers shards large models."""
    directory = request.getfixturevalue(f"{family}_directory")
    model.from_pretrained(directory).save_pretrained(tmp_path, max_shard_size="50KB")
    shutil.copy(directory / "tokenizer.json", tmp_path)
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    assert _same(load_backbone(str(tmp_path)), request.getfixturevalue(family))


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_pretraining_checkpoint_loads(family: str, bert_directory: Path, tmp_path: Path):
    """What transformers saves with its pretraining heads is the same encoder: the heads are left out."""
    sizes = {
        "vocab_size": 300,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
    }
    bert = family == "bert"
    model = BertForPreTraining(BertConfig(**sizes)) if bert else RobertaForMaskedLM(RobertaConfig(**sizes))
    model.save_pretrained(tmp_path)
    shutil.copy(bert_directory / "tokenizer.json", tmp_path)
    assert (load_backbone(str(tmp_path)).model.pooler is not None) == bert


def test_a_checkpoint_without_pooler_loads(edited: Edited):
    """Masked-language-model checkpoints have none; heads that need it are refused later."""
    directory = edited(lambda tensors: {k: v for k, v in tensors.items() if not k.startswith("pooler")})
    assert load_backbone(str(directory)).model.pooler is None


def test_a_changed_tensor_changes_the_fingerprint(bert: Backbone, edited: Edited):
    """One bit of one weight is another backbone."""

    def flip(tensors: Tensors) -> Tensors:
        tensors[QUERY].view(torch.int32)[0, 0] ^= 1
        return tensors

    assert load_backbone(str(edited(flip))).fingerprint != bert.fingerprint


_REFUSED = {
    "bert": [
        (_without(QUERY), f"tensor '{QUERY}' is missing"),
        (_without("pooler.dense.bias"), "'pooler.dense.bias' is missing"),
        (_with("encoder.layer.3.output.dense.bias", 48), "1 tensors have no place"),
        (_with("pooler.dense.extra", 48), "such as 'pooler.dense.extra'"),
        (_with(QUERY, 48, 47), "has shape (48, 47), the configuration says (48, 48)"),
        (_with(f"bert.{QUERY}", 48, 48), "is there twice"),
    ],
    "t5": [
        (_without(WO), f"tensor '{WO}' is missing"),
        (_without("shared.weight"), "tensor 'shared.weight' is missing"),
        (_without("decoder.final_layer_norm.weight"), "'decoder.final_layer_norm.weight' is missing"),
        (_with(WO, 48, 87), "has shape (48, 87), the configuration says (48, 88)"),
        (_with("classification_head.bias", 2), "such as 'classification_head.bias'"),
        (_with(WO.replace("wo", "wi_0"), 88, 48), "1 tensors have no place in a t5"),
        (
            lambda tensors: tensors | {"lm_head.weight": tensors["shared.weight"] + 1},
            "tensor 'lm_head.weight' differs from 'shared.weight'",
        ),
    ],
    "t5_gated": [(_without("lm_head.weight"), "tensor 'lm_head.weight' is missing")],  # nothing stands in for it
}


@pytest.mark.parametrize(
    ("family", "change", "words"), [(family, *case) for family, cases in _REFUSED.items() for case in cases]
)
def test_every_tensor_is_consumed_or_refused(family, change, words, request, edited):
    """A checkpoint that does not fit its configuration is refused by the tensor's name."""
    with pytest.raises(BackboneError) as caught:
        load_backbone(str(edited(change, request.getfixturevalue(f"{family}_directory"))))
    assert words in str(caught.value)


def test_a_fine_tuned_classifier_is_refused(bert_directory: Path, tmp_path: Path):
    """A checkpoint with a task head of its own is not silently cut down to its encoder."""
    config = BertConfig(vocab_size=200, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    shutil.copy(bert_directory / "tokenizer.json", tmp_path)
    with pytest.raises(BackboneError, match="have no place in a bert encoder, such as 'classifier"):
        load_backbone(str(tmp_path))


def test_a_larger_tokenizer_is_refused(bert_directory: Path, minilm: Backbone, tmp_path: Path):
    """Ids without an embedding would fail at the first request that uses them."""
    directory = tmp_path / "mismatched"
    shutil.copytree(bert_directory, directory)
    shutil.copy(find_checkpoint("minilm") / "tokenizer.json", directory)
    with pytest.raises(BackboneError, match="the tokenizer has 30522 entries"):
        load_backbone(str(directory))


def test_an_unknown_dtype_is_refused(bert_directory: Path):
    """The sentence lists what there is."""
    with pytest.raises(BackboneError, match="dtype 'float16' is unknown; it is one of float32, bfloat16"):
        load_backbone(str(bert_directory), dtype="float16")


def test_a_configuration_without_a_model_is_refused():
    with pytest.raises(BackboneError, match="no model is known for a configuration of type object"):
        architecture(object())


def test_an_unknown_device_is_refused(bert_directory: Path):
    """The sentence lists what there is."""
    with pytest.raises(BackboneError, match="device 'tpu' is unknown; it is 'auto', 'cpu' or 'cuda'"):
        load_backbone(str(bert_directory), device="tpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_missing_gpu_is_refused(bert_directory: Path):
    """Asking for a GPU that is not there never falls back in silence; `auto` does."""
    with pytest.raises(BackboneError, match="torch sees no CUDA device"):
        load_backbone(str(bert_directory), device="cuda")
    assert resolve_device("auto").type == "cpu"


@pytest.mark.parametrize("family", ["bert", "t5"])
def test_bfloat16_keeps_the_identity(family: str, request: pytest.FixtureRequest):
    """The fingerprint is that of the checkpoint for any compute dtype; the weights in memory differ."""
    own, half = request.getfixturevalue(family), load_backbone(request.getfixturevalue(family).name, dtype="bfloat16")
    assert half.fingerprint == own.fingerprint
    assert half.weights_digest() != own.weights_digest()


def test_int8_keeps_the_identity(bert: Backbone, bert_directory: Path):
    """The fingerprint is that of the checkpoint; activations are float32, the weights in memory differ."""
    eight = load_backbone(str(bert_directory), dtype="int8")
    assert (eight.fingerprint, eight.dtype, eight.precision) == (bert.fingerprint, torch.float32, "int8")
    assert eight.kernels["linear"].startswith("int8")
    assert eight.weights_digest() == load_backbone(str(bert_directory), dtype="int8").weights_digest()
    assert eight.weights_digest() != bert.weights_digest()


def test_int8_without_native_kernels_is_told(bert_directory: Path, caplog: pytest.LogCaptureFixture):
    """It computes the same, more slowly."""
    with kernels_in_use("torch"):
        assert load_backbone(str(bert_directory), dtype="int8").kernels["linear"] == "int8-torch"
    assert "without the native kernels products in int8 take longer than in float32" in caplog.messages


def test_int8_is_for_a_cpu(bert_directory: Path, monkeypatch: pytest.MonkeyPatch):
    """The sentence says what the other device computes in."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(BackboneError, match="dtype 'int8' is for a CPU; device 'cuda' computes in float32 or bfloat16"):
        load_backbone(str(bert_directory), device="cuda", dtype="int8")


def _memory(model: object, seen: set[int]) -> int:
    """The bytes of all tensors that belong to `model`, each memory once."""
    if id(model) in seen or seen.add(id(model)):
        return 0
    if isinstance(model, Tensor):
        storage = model.untyped_storage()
        return 0 if storage.data_ptr() in seen or seen.add(storage.data_ptr()) else storage.nbytes()
    parts = model if isinstance(model, list | tuple) else getattr(model, "__dict__", {}).values()
    return sum(_memory(part, seen) for part in parts)


def test_int8_takes_less_memory(minilm_int8: Backbone):
    """With its embeddings, which are half of MiniLM."""
    float32 = 4 * minilm_int8.config.num_parameters
    assert 0.25 * float32 < _memory(minilm_int8.model, set()) <= 0.3 * float32


def test_a_tied_t5_keeps_its_embedding_once(t5_int8: Backbone, t5_gated_int8: Backbone):
    """Look-ups read the output layer's memory; a T5 with two tables has both in 8 bits."""
    for backbone, tables in ((t5_int8, 1), (t5_gated_int8, 2)):
        both = [backbone.t5.embedding, backbone.t5.lm_head]
        size = backbone.config.vocab_size * (backbone.config.hidden_size + 4)
        assert tables * size <= _memory(both, set()) <= 1.5 * tables * size


def _states(backbone: Backbone, texts: list[str]) -> Tensor:
    with torch.inference_mode():
        return backbone.encode(backbone.pack([backbone.tokenizer.encode(text) for text in texts]))


def test_int8_states_are_near_float32(minilm: Backbone, minilm_int8: Backbone):
    """The cosine of MiniLM's last hidden states, token by token, over questions to a bank."""
    with gzip.open(_QUESTIONS, "rt") as file:
        texts = [json.loads(line)["text"] for line in itertools.islice(file, 64)]
    cosine = torch.cosine_similarity(_states(minilm, texts), _states(minilm_int8, texts))
    assert cosine.mean() >= 0.998
    assert cosine.min() >= 0.98


def test_a_backbone_from_inference_mode_passes_gradients(bert_directory: Path):
    """Its weights are no tensors that autograd refuses."""
    with torch.inference_mode():
        backbone = load_backbone(str(bert_directory))
    layer = backbone.bert.layers[0]
    x = torch.ones(2, backbone.config.hidden_size, requires_grad=True)
    layer.output_norm(layer.query_key_value(x)[:, : backbone.config.hidden_size]).sum().backward()
    assert x.grad is not None


def test_parameters_are_counted_once(minilm: Backbone):
    """MiniLM's published size."""
    assert minilm.config.num_parameters == 22_713_216


def test_the_chosen_kernels_are_visible(bert: Backbone):
    """/info shows which kernels run."""
    assert bert.kernels["linear"] in ("torch", "native")
    assert bert.kernels["attention"] in ("by-row", *(f"native-{level}" for level in LEVELS))


def test_attention_on_a_gpu_is_not_planned_for_each_shape(bert: Backbone):
    """cuDNN would."""
    assert not torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize(
    ("dtype", "times", "said"), [("bfloat16", 1.5, True), ("bfloat16", 1.05, False), ("float32", 1.5, False)]
)
def test_a_dtype_that_is_slow_here_is_told(dtype, times, said, bert_directory, monkeypatch, caplog):
    """Processors differ: on some products in bfloat16 take longer than in float32, by more than a trial may err."""
    monkeypatch.setattr(load, "slowdown", lambda asked: times)
    load_backbone(str(bert_directory), dtype=dtype)
    told = [line for line in caplog.messages if "times as long as in float32" in line]
    assert told == ["on this processor products in torch.bfloat16 take 1.5 times as long as in float32"] * said


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


def test_a_larger_tokenizer_of_a_t5_is_refused(t5_directory: Path, tmp_path: Path):
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
def test_parameters_of_a_t5_are_counted_once(name: str, request: pytest.FixtureRequest):
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
