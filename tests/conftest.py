"""Fixtures of every suite: small random backbones, the real MiniLM, and a maker of valid artifacts."""

import functools
import gc
import os
import signal
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import torch
from hypothesis import settings
from peltier_adapters.artifact.artifact import Artifact, to_bytes
from peltier_adapters.artifact.label_tree import text_tree
from peltier_adapters.artifact.manifest import Golden, Input, Manifest
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.generation.generation import create_draft, generate
from peltier_adapters.generation.search import Decoding
from peltier_adapters.golden.inputs import encode_input
from peltier_adapters.golden.proof import create_reference
from peltier_adapters.parts import init_tensors
from peltier_adapters.presets.presets import find_preset
from peltier_adapters.residency.bank import Banks, Resident
from peltier_adapters.spec.tasks import SPAN_LABELS, TaskSpec
from peltier_backbone import load
from peltier_backbone.config import BackboneConfig
from peltier_backbone.load import Backbone, load_backbone
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    BertConfig,
    BertModel,
    CamembertConfig,
    CamembertModel,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraModel,
    ModernBertConfig,
    ModernBertModel,
    PretrainedConfig,
    PreTrainedModel,
    RobertaConfig,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from tests import s3_server
from tests.skips import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401 - pytest finds hooks here

torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # the default of commands, in this process and in others
# Of `make test`, and of `make test-slow`. A busy machine is no reason to fail.
settings.register_profile("quick", deadline=None, max_examples=30)
settings.register_profile("thorough", deadline=None, max_examples=150)
settings.load_profile("quick")
# A shell's background job ignores Ctrl-C, and so would the processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

MakeArtifact = Callable[..., bytes]

_GOLDEN_TEXTS = ("a good film", "the plot was not very good , and the actor is dull", "bad")
_WORDS = sorted({word for text in _GOLDEN_TEXTS for word in text.split()} - {","})
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,!?'-"
_SIZES = {"num_hidden_layers": 3, "hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 88}
_FAIRSEQ = {"vocab_size": 70, "max_position_embeddings": 98, "layer_norm_eps": 1e-5, "pad_token_id": 1, **_SIZES}


def _word_piece() -> Tokenizer:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_WORDS, *_LETTERS, *(f"##{c}" for c in _LETTERS)]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def _byte_level() -> Tokenizer:
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({piece: index for index, piece in enumerate(pieces)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


def _unigram() -> Tokenizer:
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -4.0)]
    pieces += [(f"▁{word}", -3.0) for word in _WORDS if len(word) > 1] + [(letter, -6.0) for letter in _LETTERS]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2, byte_fallback=False))
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return tokenizer


def _fairseq_unigram() -> Tokenizer:
    """As XLM-RoBERTa's: SentencePiece's pieces behind four special tokens, and `<mask>` at the end."""
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -4.0)]
    pieces += [(f"▁{word}", -3.0) for word in _WORDS if len(word) > 1] + [(letter, -6.0) for letter in _LETTERS]
    tokenizer = Tokenizer(models.Unigram([*pieces, ("<mask>", 0.0)], unk_id=3, byte_fallback=False))
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=False)
    return tokenizer


def _randomise(model: PreTrainedModel, seed: int) -> None:
    """Weights large enough that every map, norm and bias matters to the output."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.empty_like(weight).normal_(generator=generator)
            if weight.dim() == 2:
                weight.copy_(noise * (0.5 if "embeddings" in name else 1.2 * weight.shape[1] ** -0.5))
            else:
                weight.copy_(0.2 * noise + (1.0 if name.lower().endswith("norm.weight") else 0.0))


def _randomise_t5(model: PreTrainedModel, seed: int) -> None:
    """Weights large enough that every map, norm and bias matters. A final norm of random signs keeps a tied embedding
    from writing its last token again and again."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.empty_like(weight).normal_(generator=generator)
            if name == "decoder.final_layer_norm.weight" or "shared" in name or "relative" in name:
                weight.copy_(noise)
            else:
                weight.copy_(1.0 + 0.2 * noise if weight.dim() == 1 else 1.2 * weight.shape[1] ** -0.5 * noise)


def _save_t5(directory: Path, seed: int, *, tied: bool, kind: str = "t5", **config: object) -> Path:
    tokenizer = _unigram()
    sizes = {"d_model": 48, "d_ff": 88, "num_heads": 4, "decoder_start_token_id": 0}
    file = AutoConfig.for_model(
        kind, vocab_size=tokenizer.get_vocab_size(), tie_word_embeddings=tied, **sizes, **config
    )
    model = AutoModelForSeq2SeqLM.from_config(file)
    if not tied:
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
    _randomise_t5(model, seed)
    model.save_pretrained(directory)
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


def _save(directory: Path, model: PreTrainedModel, tokenizer: Tokenizer, seed: int) -> Path:
    _randomise(model, seed)
    model.save_pretrained(directory)
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


@pytest.fixture(scope="module", autouse=True)
def _modules_stay() -> None:
    """Freezes imported modules, because every training ends with a full garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _kernels_are_tried_once() -> Iterator[None]:
    """Tries the linear kernels once per dtype instead of at each load of a backbone."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("choose_linear", "slowdown"):
            patch.setattr(load, name, functools.cache(getattr(load, name)))
        yield


@pytest.fixture(scope="session")
def bert_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 3 x 48 BERT with a WordPiece tokenizer."""
    tokenizer = _word_piece()
    config: PretrainedConfig = BertConfig(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=96, **_SIZES)
    return _save(tmp_path_factory.mktemp("bert"), BertModel(config), tokenizer, seed=1)


@pytest.fixture(scope="session")
def roberta_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 3 x 48 RoBERTa without a pooler, with a byte-level tokenizer."""
    tokenizer = _byte_level()
    config = RobertaConfig(
        vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=98, type_vocab_size=1, layer_norm_eps=1e-5,
        pad_token_id=1, bos_token_id=0, eos_token_id=2, **_SIZES,
    )  # fmt: skip
    return _save(tmp_path_factory.mktemp("roberta"), RobertaModel(config, add_pooling_layer=False), tokenizer, seed=2)


@pytest.fixture(scope="session")
def xlm_roberta_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 3 x 48 XLM-RoBERTa without a pooler, with a Unigram tokenizer."""
    config = XLMRobertaConfig(type_vocab_size=1, **_FAIRSEQ)
    model = XLMRobertaModel(config, add_pooling_layer=False)
    return _save(tmp_path_factory.mktemp("xlm-roberta"), model, _fairseq_unigram(), seed=8)


@pytest.fixture(scope="session")
def camembert_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 3 x 48 CamemBERT with an untrained pooler, with a Unigram tokenizer."""
    config = CamembertConfig(type_vocab_size=1, **_FAIRSEQ)
    return _save(tmp_path_factory.mktemp("camembert"), CamembertModel(config), _fairseq_unigram(), seed=9)


@pytest.fixture(scope="session")
def distilbert_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 3 x 48 DistilBERT with a WordPiece tokenizer."""
    tokenizer = _word_piece()
    sizes = {"n_layers": 3, "dim": 48, "n_heads": 4, "hidden_dim": 88}
    config = DistilBertConfig(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=96, **sizes)
    return _save(tmp_path_factory.mktemp("distilbert"), DistilBertModel(config), tokenizer, seed=10)


@pytest.fixture(scope="session")
def electra_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 3 x 48 ELECTRA whose embeddings have a width of 20, with a WordPiece tokenizer."""
    tokenizer = _word_piece()
    sizes = {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 96, "embedding_size": 20, **_SIZES}
    return _save(tmp_path_factory.mktemp("electra"), ElectraModel(ElectraConfig(**sizes)), tokenizer, seed=11)


@pytest.fixture(scope="session")
def modernbert_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 4 x 48 ModernBERT whose local layers see four tokens to each side, with a WordPiece
    tokenizer."""
    tokenizer = _word_piece()
    config = ModernBertConfig(
        vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=96, local_attention=8, pad_token_id=0,
        bos_token_id=2, cls_token_id=2, eos_token_id=3, sep_token_id=3, **_SIZES | {"num_hidden_layers": 4},
    )  # fmt: skip
    return _save(tmp_path_factory.mktemp("modernbert"), ModernBertModel(config), tokenizer, seed=3)


@pytest.fixture(scope="session")
def t5_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 3 + 2 x 48 T5 v1.0 (ReLU, tied) with a Unigram tokenizer."""
    return _save_t5(tmp_path_factory.mktemp("t5"), 6, tied=True, num_layers=3, num_decoder_layers=2, d_kv=12)


@pytest.fixture(scope="session")
def t5_gated_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 2 + 2 x 48 T5 v1.1 (gated GELU, untied) whose attention is narrower than its states."""
    return _save_t5(
        tmp_path_factory.mktemp("t5-gated"), 4, tied=False, num_layers=2, num_decoder_layers=2, d_kv=8,
        feed_forward_proj="gated-gelu",
    )  # fmt: skip


@pytest.fixture(scope="session")
def mt5_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 2 + 2 x 48 mT5 (gated GELU, untied) with a Unigram tokenizer."""
    sizes = {"num_layers": 2, "num_decoder_layers": 2, "d_kv": 12}
    return _save_t5(tmp_path_factory.mktemp("mt5"), 12, kind="mt5", tied=False, **sizes)


@pytest.fixture(scope="session")
def umt5_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 3 + 2 x 48 umT5 (a relative bias for each block, untied) with a Unigram tokenizer."""
    sizes = {"num_layers": 3, "num_decoder_layers": 2, "d_kv": 12}
    return _save_t5(tmp_path_factory.mktemp("umt5"), 13, kind="umt5", tied=False, **sizes)


@pytest.fixture(scope="session")
def bert(bert_directory: Path) -> Backbone:
    """The small random BERT."""
    return load_backbone(str(bert_directory))


@pytest.fixture(scope="session")
def roberta(roberta_directory: Path) -> Backbone:
    """The small random RoBERTa; it has no pooler, as masked-language-model checkpoints do."""
    return load_backbone(str(roberta_directory))


@pytest.fixture(scope="session")
def xlm_roberta(xlm_roberta_directory: Path) -> Backbone:
    """The small random XLM-RoBERTa."""
    return load_backbone(str(xlm_roberta_directory))


@pytest.fixture(scope="session")
def camembert(camembert_directory: Path) -> Backbone:
    """The small random CamemBERT."""
    return load_backbone(str(camembert_directory))


@pytest.fixture(scope="session")
def distilbert(distilbert_directory: Path) -> Backbone:
    """The small random DistilBERT."""
    return load_backbone(str(distilbert_directory))


@pytest.fixture(scope="session")
def electra(electra_directory: Path) -> Backbone:
    """The small random ELECTRA."""
    return load_backbone(str(electra_directory))


@pytest.fixture(scope="session")
def electra_int8(electra_directory: Path) -> Backbone:
    """The small random ELECTRA in int8."""
    return load_backbone(str(electra_directory), dtype="int8")


@pytest.fixture(scope="session")
def modernbert(modernbert_directory: Path) -> Backbone:
    """The small random ModernBERT; it has no pooler and no biases."""
    return load_backbone(str(modernbert_directory))


@pytest.fixture(scope="session")
def t5(t5_directory: Path) -> Backbone:
    """The small random T5 v1.0."""
    return load_backbone(str(t5_directory))


@pytest.fixture(scope="session")
def t5_gated(t5_gated_directory: Path) -> Backbone:
    """The small random T5 v1.1."""
    return load_backbone(str(t5_gated_directory))


@pytest.fixture(scope="session")
def mt5(mt5_directory: Path) -> Backbone:
    """The small random mT5."""
    return load_backbone(str(mt5_directory))


@pytest.fixture(scope="session")
def umt5(umt5_directory: Path) -> Backbone:
    """The small random umT5."""
    return load_backbone(str(umt5_directory))


@pytest.fixture(scope="session")
def umt5_int8(umt5_directory: Path) -> Backbone:
    """The small random umT5 in int8."""
    return load_backbone(str(umt5_directory), dtype="int8")


@pytest.fixture(scope="session")
def minilm() -> Backbone:
    """The real pretrained 6-layer BERT, loaded once."""
    return load_backbone("minilm")


@pytest.fixture(scope="session")
def bert_bfloat16(bert_directory: Path) -> Backbone:
    """The small random BERT in bfloat16."""
    return load_backbone(str(bert_directory), dtype="bfloat16")


@pytest.fixture(scope="session")
def t5_bfloat16(t5_directory: Path) -> Backbone:
    """The small random T5 v1.0 in bfloat16."""
    return load_backbone(str(t5_directory), dtype="bfloat16")


@pytest.fixture(scope="session")
def bert_int8(bert_directory: Path) -> Backbone:
    """The small random BERT in int8."""
    return load_backbone(str(bert_directory), dtype="int8")


@pytest.fixture(scope="session")
def modernbert_bfloat16(modernbert_directory: Path) -> Backbone:
    """The small random ModernBERT in bfloat16."""
    return load_backbone(str(modernbert_directory), dtype="bfloat16")


@pytest.fixture(scope="session")
def modernbert_int8(modernbert_directory: Path) -> Backbone:
    """The small random ModernBERT in int8."""
    return load_backbone(str(modernbert_directory), dtype="int8")


@pytest.fixture(scope="session")
def t5_int8(t5_directory: Path) -> Backbone:
    """The small random T5 v1.0 in int8."""
    return load_backbone(str(t5_directory), dtype="int8")


@pytest.fixture(scope="session")
def t5_gated_int8(t5_gated_directory: Path) -> Backbone:
    """The small random T5 v1.1 in int8."""
    return load_backbone(str(t5_gated_directory), dtype="int8")


@pytest.fixture(scope="session")
def minilm_int8() -> Backbone:
    """The real pretrained 6-layer BERT in int8."""
    return load_backbone("minilm", dtype="int8")


@pytest.fixture(scope="session")
def s3_buckets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a bucket on a real S3 server: the one that S3_TEST_URL names, or else moto's."""
    if "S3_TEST_URL" in os.environ:
        yield os.environ["S3_TEST_URL"]
        return
    directory = tmp_path_factory.mktemp("s3")
    with s3_server.start(s3_server.moto(directory), directory / "log") as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        yield server.url("")


@pytest.fixture
def s3_store(s3_buckets: str) -> str:
    """The URL of an empty blob store on that server."""
    url = urlsplit(s3_buckets)
    return url._replace(path=f"{url.path.rstrip('/')}/{uuid.uuid4().hex}").geturl()


@pytest.fixture(scope="session")
def make_artifact() -> MakeArtifact:
    """`make_artifact(backbone, preset, …) -> bytes`: a valid artifact with random tensors and true golden outputs.

    The same bytes for the same arguments, made once.
    """
    made: dict[str, bytes] = {}

    def make(backbone: Backbone, preset: str = "compacter", **options: object) -> bytes:
        key = repr((backbone.name, backbone.fingerprint, backbone.precision, preset, sorted(options.items())))
        if key not in made:
            made[key] = _make_artifact(backbone, preset, **options)
        return made[key]

    return make


def fitting(preset: str, config: BackboneConfig) -> dict[str, str]:
    """Settings that fit a preset to the small backbones."""
    settings = {"adapterdrop": {"skip": "1"}, "prompt-r": {"length": "4"}, "prompt-t": {"length": "3"}}.get(preset, {})
    if config.generates and preset in (
        "houlsby",
        "pfeiffer",
        "pfeiffer-attention",
        "adapterdrop",
        "lowrank",
        "phm",
        "compacter",
        "compacter++",
    ):
        settings = {**settings, "bottleneck": "8"}
    return settings


def _make_artifact(
    backbone: Backbone, preset: str = "compacter", *, name: str = "demo", overrides: dict[str, str] | None = None,
    labels: Sequence[str] = ("negative", "positive"), task_type: str = "classification", inputs: str = "single",
    max_length: int = 64, seed: int = 0, answer: str | None = None, normalized: bool = False,
) -> bytes:  # fmt: skip
    chosen = find_preset(preset)
    given = _HEADS.get(task_type, {}) | fitting(preset, backbone.config) | (overrides or {})
    values = chosen.settings(given, backbone.config)
    labels = {"span": SPAN_LABELS, "ranking": ("score",), "embedding": ()}.get(task_type, tuple(labels))
    outputs = backbone.config.hidden_size if task_type == "embedding" else len(labels)
    parts = chosen.compose(values, backbone.config, outputs=outputs)
    texts: list[Input] = [_input(text, inputs) for text in _GOLDEN_TEXTS]
    task = _task(backbone, labels, task_type, inputs, max_length, answer)
    task = task.model_copy(update={"normalized": normalized})
    width = task.num_outputs if backbone.config.generates else outputs
    placeholder = "a" if task_type == "text2text" else None
    manifest = Manifest(
        name=name,
        preset=preset,
        parts=parts,
        backbone=create_reference(backbone),
        task=task,
        golden=tuple(Golden(input=text, output=(0.0,) * width, text=placeholder) for text in texts),
    )
    tensors = _random_tensors(manifest, backbone, seed)
    resident = Banks(backbone).add(Artifact(manifest, tensors, f"sha256:{0:064}"))
    golden = tuple(_golden(backbone, resident, text) for text in texts)
    return to_bytes(manifest.model_copy(update={"golden": golden}), tensors)


# The settings of the heads of some types of tasks.
_HEADS = {
    "token-classification": {"pooling": "tokens"},
    "span": {"pooling": "tokens"},
    "embedding": {"pooling": "mean", "head_projection": "false"},
}
_TEMPLATES = {
    "single": "good film: {text}",
    "pair": "good: {text} film: {pair}",
    "triple": "good: {text} film: {pair} plot: {third}",
}


def _input(text: str, inputs: str) -> Input:
    match inputs:
        case "pair":
            return text, text[::-1]
        case "triple":
            return text, text[::-1], text.upper()
    return text


def _task(
    backbone: Backbone, labels: Sequence[str], task_type: str, inputs: str, max_length: int, answer: str | None
) -> TaskSpec:
    given = {"type": task_type, "inputs": inputs, "max_length": max_length}
    if not backbone.config.generates:
        return TaskSpec.model_validate(given | {"labels": tuple(labels)})
    closed = task_type != "text2text"
    return TaskSpec.model_validate(
        given
        | {
            "labels": tuple(labels) if task_type == "classification" else ("value",) if closed else (),
            "targets": tuple(labels) if closed else (),
            "template": _TEMPLATES[inputs],
            "decoding": {"answer": answer or ("score" if closed else "generate"), "max_new_tokens": 12},
        }
    )


def _golden(backbone: Backbone, resident: Resident, value: Input) -> Golden:
    """A golden example with the adapter's own answer."""
    task, text, tree = resident.task, None, None
    encoded = encode_input(backbone, task, value)
    if task.type == "text2text":
        draft = create_draft(backbone, Row(encoded, resident), Decoding(max_new_tokens=8))
        generate(backbone, [draft], max_rows=1)
        text = backbone.tokenizer.decode(draft.ids) or "a"
        tree = text_tree(text, backbone)
    output = forward(backbone, [Row(encoded, resident, tree=tree)])[0]
    return Golden(input=value, output=tuple(output.logits.flatten().tolist()), text=text)


def _random_tensors(manifest: Manifest, backbone: Backbone, seed: int) -> dict[str, torch.Tensor]:
    """Every tensor far from its initial value, so that no part of the adapter is without effect."""
    generator = torch.Generator().manual_seed(seed)
    tensors = init_tensors(manifest.parts, backbone, generator)
    return {name: _away(name, tensor, generator) for name, tensor in tensors.items()}


def _away(name: str, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    noise = torch.empty_like(tensor).normal_(generator=generator)
    if name.endswith("rule"):
        return noise / tensor.shape[-1]  # the sum of n Kronecker products is then as large as a dense map
    if name.startswith(("bias", "norm")) or name.endswith("bias"):
        return tensor + 0.2 * noise
    if name.startswith("prefix") and "gate" not in name:
        return noise
    return tensor + 0.7 * tensor.shape[-2 if tensor.dim() > 1 else -1] ** -0.5 * noise
