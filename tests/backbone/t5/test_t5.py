"""Parity of T5 with transformers: the encoder, teacher forcing, and greedy steps."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.cache import Cache
from peltier_backbone.decoding.targets import Targets
from peltier_backbone.load import load_backbone
from peltier_backbone.text.packing import Encoded
from torch import Tensor
from transformers import AutoConfig, AutoModelForSeq2SeqLM, PreTrainedModel

from tests.support.decoder import arrange, decode
from tests.support.parity import distance, draw_rows, save

LENGTHS = (1, 2, 3, 7, 16, 31, 150, 5, 5)
V1 = {"d_model": 48, "d_kv": 12, "num_heads": 4, "d_ff": 64, "num_layers": 3, "num_decoder_layers": 2}
SHAPES: list[dict[str, Any]] = [
    V1,
    {**V1, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    # heads * kv_size is less, and more, than the hidden size; a stack of one block; other activations and buckets
    {**V1, "d_kv": 5, "num_heads": 3, "feed_forward_proj": "gated-silu", "tie_word_embeddings": False},
    {**V1, "d_kv": 24, "num_decoder_layers": 1, "feed_forward_proj": "gelu_new", "relative_attention_num_buckets": 9},
    {
        **V1,
        "d_kv": 7,
        "num_heads": 5,
        "num_layers": 2,
        "feed_forward_proj": "gelu",
        "relative_attention_max_distance": 20,
    },
    {**V1, "model_type": "mt5", "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    # a bias for each block
    {**V1, "model_type": "umt5", "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
]


def _random_model(shape: dict[str, Any]) -> PreTrainedModel:
    """Weights and relative biases large enough that every one of them matters."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(**{"model_type": "t5", "vocab_size": 100, "decoder_start_token_id": 0, **shape})
    model = AutoModelForSeq2SeqLM.from_config(config)
    if shape.get("tie_word_embeddings") is False:
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            torch.nn.init.normal_(weight, mean=0.0 if name.startswith("decoder.final") else 1.0, std=0.3)
        else:
            table = "shared" in name or "relative" in name
            torch.nn.init.normal_(weight, std=1.0 if table else 1.2 * weight.shape[1] ** -0.5)
    return model.eval()


@pytest.fixture(scope="module", params=SHAPES, ids=lambda shape: "-".join(map(str, shape.values())))
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, t5_directory: Path
) -> tuple[PreTrainedModel, Path]:
    """A random model of transformers, and its checkpoint."""
    model, directory = _random_model(request.param), tmp_path_factory.mktemp("t5")
    save(model, directory, t5_directory)
    return model, directory


def _padded(rows: list[Encoded]) -> dict[str, Tensor]:
    width = max(map(len, rows))
    ids = torch.tensor([[*row.ids, *[0] * (width - len(row))] for row in rows])
    return {"input_ids": ids, "attention_mask": torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in rows])}


def _texts(num_rows: int, length: int = 24) -> Tensor:
    """Decoder inputs, the start token first."""
    texts = torch.randint(1, 100, (num_rows, length), generator=torch.Generator().manual_seed(1))
    return texts.index_fill(1, torch.tensor([0]), 0)


@torch.inference_mode()
def _reference(model: PreTrainedModel, rows: list[Encoded], texts: Tensor) -> tuple[Tensor, Tensor]:
    """Encoder states of the real tokens, back to back, and teacher-forced logits [rows * length, vocab]."""
    inputs = _padded(rows)
    output = model(**inputs, decoder_input_ids=texts)
    return output.encoder_last_hidden_state[inputs["attention_mask"].bool()], output.logits.flatten(0, 1)


@torch.inference_mode()
def _ours(backbone: Backbone, rows: list[Encoded], texts: Tensor) -> tuple[Tensor, Tensor]:
    packed, model = backbone.pack(rows), backbone.t5
    states = backbone.encode(packed)
    targets = Targets.create(texts.tolist(), None, backbone.device)
    return states, model.logits(decode(backbone, targets, model.project_kv(packed, states)))


def test_float32_equals_transformers(pair: tuple[PreTrainedModel, Path]):
    """Encoder states and teacher-forced logits differ by rounding alone, always by less than 1e-4."""
    model, directory = pair
    rows, texts = draw_rows(LENGTHS, 100), _texts(len(LENGTHS))
    for found, theirs in zip(
        _ours(load_backbone(str(directory)), rows, texts), _reference(model, rows, texts), strict=True
    ):
        assert distance(found, theirs) < 1e-4


def test_bfloat16_is_as_exact_as_transformers(pair: tuple[PreTrainedModel, Path]):
    """In bfloat16 we are as near to the float64 result of the rounded weights as transformers in bfloat16 is."""
    directory = pair[1]
    rows, texts = draw_rows(LENGTHS, 100), _texts(len(LENGTHS))
    ours = _ours(load_backbone(str(directory), dtype="bfloat16"), rows, texts)
    model = AutoModelForSeq2SeqLM.from_pretrained(directory, dtype=torch.bfloat16).eval()
    theirs = _reference(model, rows, texts)
    exact = _reference(model.double(), rows, texts)
    for found, their, right in zip(ours, theirs, exact, strict=True):
        assert found.dtype == torch.bfloat16
        assert (found.double() - right).norm() < 1.5 * (their.double() - right).norm()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@torch.inference_mode()
def test_steps_equal_teacher_forcing(pair: tuple[PreTrainedModel, Path], dtype: str):
    """A text fed token by token has the states that it has at once, to rounding: a thousandth of bfloat16's range."""
    backbone = load_backbone(str(pair[1]), dtype=dtype)
    rows, texts = draw_rows(LENGTHS, 100), _texts(len(LENGTHS))
    packed, model = backbone.pack(rows), backbone.t5
    memory = model.project_kv(packed, backbone.encode(packed))
    forced = decode(backbone, Targets.create(texts.tolist(), None, backbone.device), memory)
    cache = Cache(model.config, backbone.device, backbone.dtype)
    slots = [slot for own in cache.join(memory) for slot in own]
    steps = torch.stack([arrange(backbone, slots, cache)(column) for column in texts.t()], 1).flatten(0, 1)
    assert steps.dtype == backbone.dtype
    if dtype == "float32":
        assert distance(steps, forced) < 1e-4
    else:
        assert (steps.double() - forced.double()).norm() < 0.05 * forced.double().norm()


@torch.inference_mode()
def test_greedy_texts_equal_generate(pair: tuple[PreTrainedModel, Path]):
    """32 greedy steps write what transformers' `generate` writes, with its logits to 1e-4."""
    model, directory = pair
    backbone, rows = load_backbone(str(directory)), draw_rows(LENGTHS, 100)
    model.generation_config.eos_token_id = None  # no row ends early
    theirs = model.generate(
        **_padded(rows), max_new_tokens=32, do_sample=False, output_logits=True, return_dict_in_generate=True
    )
    packed = backbone.pack(rows)
    cache = Cache(backbone.t5.config, backbone.device, backbone.dtype)
    joined = cache.join(backbone.t5.project_kv(packed, backbone.encode(packed)))
    slots, tokens = [slot for own in joined for slot in own], torch.zeros(len(rows), dtype=torch.long)
    texts = [tokens]
    for logits in theirs.logits:
        found = backbone.t5.logits(arrange(backbone, slots, cache)(tokens))
        assert distance(found, logits) < 1e-4
        tokens = found.argmax(-1)
        texts.append(tokens)
    assert torch.equal(torch.stack(texts, 1), theirs.sequences)
    assert len(theirs.sequences.unique()) > 15, "the texts are too monotonous to prove anything"


@pytest.mark.parametrize("name", ["t5", "t5_gated"])
@torch.inference_mode()
def test_rows_do_not_see_their_neighbours(name: str, request: pytest.FixtureRequest):
    """A row's states, in the encoder and in the decoder, are the same alone and between rows of any length."""
    backbone = request.getfixturevalue(name)
    rows, texts = draw_rows((1, 2, 40, 7, 7), 100), _texts(5)
    rows = [Encoded(tuple(token % 58 for token in row.ids), row.types) for row in rows]
    states, logits = _ours(backbone, rows, texts % 58)
    starts = backbone.pack(rows).starts
    for row in range(5):
        alone = _ours(backbone, [rows[row]], texts[[row]] % 58)
        assert distance(states[starts[row] : starts[row + 1]], alone[0]) < 1e-5
        assert distance(logits.view(5, 24, -1)[row], alone[1]) < 1e-5


def test_norms_are_all_there(t5: Backbone):
    """In the order in which adaptations number them."""
    norms, model = t5.t5.norms(), t5.t5
    assert len(norms) == t5.config.num_norms
    assert norms[1] is model.encoder.blocks[0].feed_forward.norm
    assert norms[6] is model.encoder.norm
    assert norms[8] is model.decoder.blocks[0].cross.norm
    assert norms[-1] is model.decoder.norm


@torch.inference_mode()
def test_logits_of_some_states_need_no_others(t5: Backbone):
    """The caller chooses whose logits to compute: [n, vocab] are made for the n it asks for."""
    hidden = torch.randn(7, t5.config.hidden_size, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(t5.t5.logits(hidden[[5, 2]]), t5.t5.logits(hidden)[[5, 2]])
