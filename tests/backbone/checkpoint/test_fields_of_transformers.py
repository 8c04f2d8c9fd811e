"""Every field that transformers knows of a family: what changes its answers is served as it does, or refused."""

import importlib
import inspect
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import load_config
from peltier_backbone.decoding.targets import Targets
from peltier_backbone.errors import BackboneError
from peltier_backbone.load import load_backbone
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

ENCODERS = (
    "bert", "roberta", "camembert", "distilbert", "electra", "deberta", "deberta_v2", "mpnet", "nomic_bert", "gte",
    "jina", "modernbert", "eurobert",
)  # fmt: skip
TEXT_MODELS = ("t5", "t5_gated", "mt5", "umt5")
FAST = ("bert", "modernbert", "t5")
TEXT = "the plot is very very bad and the actor too"
TARGETS = [0, 5, 6, 7]
ACTIVATIONS = ["relu", "gelu", "gelu_new", "gelu_pytorch_tanh", "quick_gelu", "silu", "tanh"]
# Of a field of this name; other values depend on their type alone.
OTHERS: dict[str, list[Any]] = {
    **dict.fromkeys(("hidden_act", "hidden_activation", "activation", "conv_act", "dense_act_fn"), ACTIVATIONS),
    "feed_forward_proj": ["relu", "gelu", "silu", "gated-gelu", "gated-silu", "gated-relu", "tanh", "gated-tanh"],
    "position_embedding_type": ["relative_key", "relative_key_query", "rope"],
    "pos_att_type": [None, [], ["c2p"], ["p2c"], "c2p", "p2c|c2p", ["p2p"]],
    "norm_rel_ebd": ["none", "layer_norm", "batch_norm"],
    "layer_types": [],
    "rope_scaling": [{"rope_type": "dynamic", "factor": 2.0}, {"type": "linear", "factor": 2.0}],
    # What is answered, and not what.
    **{
        name: []
        for name in (
            "architectures", "attn_implementation", "dtype", "is_encoder_decoder", "model_type", "output_attentions",
            "output_hidden_states", "return_dict", "transformers_version",
        )
    },
}  # fmt: skip
# Changes of these change no answer of a model without a head.
HARMLESS = {
    "_name_or_path", "add_cross_attention", "attention_dropout", "attention_probs_dropout_prob", "bos_token_id",
    "chunk_size_feed_forward", "classifier_dropout", "cls_dropout", "cls_token_id", "conv_act", "conv_groups",
    "decoder_bias", "decoder_start_token_id", "deterministic_flash_attn", "embedding_dropout", "eos_token_id",
    "head_dim", "hidden_dropout_prob", "id2label", "initializer_cutoff_factor", "initializer_factor",
    "initializer_range", "is_decoder", "label2id", "legacy", "local_attention", "mask_token_id",
    "max_relative_positions", "mlp_dropout", "num_labels", "pad_token_id", "pooler_dropout", "pooler_hidden_act",
    "pooler_hidden_size", "pos_att_type", "pretraining_tp", "problem_type", "qa_dropout", "sep_token_id",
    "seq_classif_dropout", "sinusoidal_pos_embds", "sparse_pred_ignore_index", "sparse_prediction",
    "summary_activation", "summary_first_dropout", "summary_last_dropout", "summary_proj_to_labels", "summary_type",
    "summary_use_proj", "tie_word_embeddings", "type_vocab_size", "use_cache",
}  # fmt: skip
# The published files of umT5 say that it is untied, and they are; transformers 5 ties it whatever they say.
OTHERWISE = {("umt5", "tie_word_embeddings")}


def _fields(config: Any) -> set[str]:
    """Those of the configuration, and those that the code of the models reads."""
    source = inspect.getsource(importlib.import_module(AutoModel._model_mapping[type(config)].__module__))
    read = set(re.findall(r'config\.([a-z_0-9]+)\b(?!\()|getattr\(config, "([a-z_0-9]+)"', source))
    known = {*config.to_dict(), *config.attribute_map}
    return known | {name for pair in read for name in pair if name and not name.startswith("_")}


def _others(name: str, value: Any) -> Iterator[Any]:
    if name in OTHERS:
        yield from (one for one in OTHERS[name] if one != value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, 2 * value)
    elif isinstance(value, float):
        yield from (2 * value, 0.5)
    elif isinstance(value, str):
        yield "other"
    elif value is None:
        yield from (True, 2, 0.5, "other")
    elif isinstance(value, dict):
        for key, own in value.items():
            yield from ({**value, key: one} for one in _others(key, own))


def _theirs(folder: Path, ids: Tensor, generates: bool) -> Tensor | None:
    """The answers of transformers, [tokens, width], without the vocabulary's padding; None if it has none."""
    kind = AutoModelForSeq2SeqLM if generates else AutoModel
    try:
        model = kind.from_pretrained(folder, dtype=torch.float32).eval()
        with torch.no_grad():
            if generates:
                return model(input_ids=ids[None], decoder_input_ids=torch.tensor([TARGETS])).logits[0]
            return model(ids[None]).last_hidden_state[0]
    except Exception:  # whatever it does with a value that it does not know
        return None


def _ours(backbone: Backbone) -> Tensor:
    packed = backbone.pack([backbone.tokenizer.encode(TEXT)])
    with torch.inference_mode():
        if not backbone.config.generates:
            return backbone.bert(packed)
        model = backbone.t5
        memory = model.project_kv(packed, model.encode(packed))
        return model.logits(model.decode(Targets.create([TARGETS], None, backbone.device), memory))


def _is_close(one: Tensor, other: Tensor) -> bool:
    rows, columns = one.shape
    return len(other) == rows and bool((one - other[:, :columns]).abs().max() < 1e-4 * one.abs().max())


def _changed(folder: Path, raw: dict[str, Any], to: Path) -> Path:
    """The checkpoint in `folder` with another configuration."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    (to / "config.json").write_text(json.dumps(raw))
    return to


@pytest.mark.parametrize(
    "family", [pytest.param(one, marks=() if one in FAST else pytest.mark.slow) for one in (*ENCODERS, *TEXT_MODELS)]
)
def test_a_field_is_served_as_by_transformers_or_refused(family: str, tmp_path: Path, request: pytest.FixtureRequest):
    """A changed value changes our answers as it changes theirs, or it is refused, or both answer as before. Fields of
    the last kind are listed."""
    backbone: Backbone = request.getfixturevalue(family)
    folder, generates, found = Path(backbone.name), backbone.config.generates, _ours(backbone)
    raw = json.loads((folder / "config.json").read_text())
    ids = backbone.pack([backbone.tokenizer.encode(TEXT)]).ids
    config, before = AutoConfig.from_pretrained(folder), _theirs(folder, ids, generates)
    assert before is not None
    assert _is_close(found, before)
    wrong, idle = [], set[str]()
    for field in sorted(_fields(config) - {name for own, name in OTHERWISE if own == family}):
        value = raw.get(field, getattr(config, field, None))
        for other in _others(field, value):
            changed = _changed(folder, {**raw, field: other}, tmp_path / "changed")
            try:
                same = load_config(changed) == load_config(folder)
                own = found if same else _ours(load_backbone(str(changed)))
            except BackboneError:
                continue
            theirs = _theirs(changed, ids, generates)
            if theirs is not None and not _is_close(own, theirs):
                wrong.append((field, other))
            if same:
                idle.add(field)
    assert wrong == []
    assert idle - HARMLESS == set()
