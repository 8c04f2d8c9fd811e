import json
import shutil
from pathlib import Path

import pytest
import torch
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.peft import read_peft
from peltier_adapters.importers.run import Import, import_adapter
from peltier_adapters.importers.shared.parts import prefix_width
from peltier_adapters.spec.parts import LoraSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from safetensors.torch import load_file, save_file
from transformers import (
    BertForSequenceClassification,
    DebertaV2ForSequenceClassification,
    EuroBertForTokenClassification,
)

from tests.adapters_store.importers.conftest import SavePeft, answers, check_answers

QUERY = "base_model.model.bert.encoder.layer.0.attention.self.query"
NO_LORA: dict[str, torch.Tensor | None] = {f"{QUERY}.lora_A.weight": None, f"{QUERY}.lora_B.weight": None}
SIDES = {"A": (2, 48), "B": (48, 2)}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"peft_type": ["LORA"]}, r"peft_type is \['LORA'\]; supported are"),
        ({"alpha_pattern": {"query": "big"}}, "alpha_pattern is {'query': 'big'}; it must map names to numbers"),
        ({"alpha_pattern": {"query": None}}, "alpha_pattern is {'query': None}; it must map names to numbers"),
        ({"alpha_pattern": ["query"]}, r"alpha_pattern is \['query'\]; it must map names to numbers"),
        ({"lora_alpha": 10**400}, "lora_alpha is an integer of 401 digits; it must be smaller"),
        (
            {"peft_type": "OFT"},
            "peft_type is 'OFT'; supported are LORA, PREFIX_TUNING, PROMPT_TUNING, LN_TUNING, IA3, VERA",
        ),
        ({"task_type": "CAUSAL_LM"}, 'task_type is "CAUSAL_LM", which is not supported'),
        ({"init_lora_weights": "pissa"}, 'init_lora_weights is "pissa"'),
        ({"use_qalora": True}, "use_qalora is true, which this importer does not know"),
        ({"lora_alpha": "four"}, "lora_alpha is 'four'; it must be a number"),
        ({"alpha_pattern": {"(": 1}}, "alpha_pattern .* has an invalid regular expression"),
    ],
)
def test_settings_that_change_the_answers_are_refused(settings, sentence, save_peft, bert):
    with pytest.raises(AdapterError, match=sentence):
        read_peft(save_peft(**settings), bert)


POOLER = {
    f"base_model.model.bert.pooler.dense.{name}": one for name, one in torch.nn.Linear(48, 48).state_dict().items()
}
POOLER |= {f"base_model.model.classifier.{name}": None for name in ("weight", "bias")}
ADAPTED_POOLER = {
    f"base_model.model.bert.pooler.dense.lora_{side}.weight": torch.ones(one) for side, one in SIDES.items()
}
TABLE = "base_model.model.bert.embeddings.word_embeddings.weight"


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        ({f"{QUERY}.lora_A.weight": torch.ones(2, 32)}, r"shape \[2, 32\]; on this backbone it must be \[any, 48\]"),
        ({f"{QUERY}.lora_A.weight": torch.ones(0, 48)}, r"has shape \[0, 48\]; it must not be empty"),
        ({f"{QUERY}.lora_A.weight": torch.ones(2, 48).long()}, "has dtype torch.int64; weights are floating point"),
        ({f"{QUERY}.lora_B.weight": None}, "is missing"),
        ({f"{QUERY}.lora_magnitude_vector": torch.ones(48)}, "use_dora is false, and .* says otherwise"),
        ({TABLE: torch.ones(2, 48)}, "that this importer does not support"),
        ({f"{QUERY.replace('layer.0', 'layer.7')}.lora_A.weight": torch.ones(2, 48)}, "linear maps of this backbone's"),
        ({"base_model.model.classifier.weight": torch.ones(2, 32)}, r"it must be \[any, 48\]"),
        (POOLER, "has a pooler without the classifier that reads it; save both"),
        (NO_LORA | ADAPTED_POOLER, "has no adapter for this backbone, only a head"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(tensors, sentence, save_peft, bert):
    settings = {"modules_to_save": ["classifier", "pooler"]} if tensors is POOLER else {}
    with pytest.raises(AdapterError, match=sentence):
        read_peft(save_peft(tensors, **settings), bert)


def test_maps_of_every_shape_keep_their_own_ranks_and_scales(save_peft: SavePeft, bert: Backbone) -> None:
    """Ranks are padded with zeros, a scale is in its up map, and a pooler is merged into the head."""
    hidden, inner = bert.config.hidden_size, bert.config.intermediate_size
    layer, pooler = QUERY.removesuffix(".attention.self.query"), "base_model.model.bert.pooler.dense"
    shapes = {f"{layer}.intermediate.dense": (3, hidden, inner), f"{layer}.output.dense": (1, inner, hidden)}
    drawn = {
        f"{module}.lora_{side}.weight": torch.randn((rank, before) if side == "A" else (after, rank))
        for module, (rank, before, after) in (shapes | {pooler: (2, hidden, hidden)}).items()
        for side in "AB"
    }
    patterns = {"alpha_pattern": {"intermediate.dense": 6, "pooler.dense": 1}}
    patterns |= {"rank_pattern": {"intermediate.dense": 3, r"0\.output.dense": 1}}
    found = read_peft(save_peft(drawn, **patterns), bert)
    (lora, head), tensors = found.parts, found.tensors
    assert isinstance(lora, LoraSpec)
    assert (lora.targets, lora.rank, lora.alpha) == (("query", "intermediate", "ffn_output"), 3, 3.0)
    for module, (rank, _, _) in shapes.items():
        suffix, scale = (".intermediate", 6 / 3) if "intermediate" in module else (".ffn_output", 4 / 1)
        a, b = (drawn[f"{module}.lora_{side}.weight"] for side in "AB")
        down, up = tensors[f"lora.down{suffix}"], tensors[f"lora.up{suffix}"]
        assert not down[0, 1:].any()
        assert not down[0, 0, :, rank:].any()
        torch.testing.assert_close(down[0, 0] @ up[0, 0], scale * (b @ a).T)
    a, b = (drawn[f"{pooler}.lora_{side}.weight"] for side in "AB")
    assert bert.bert.pooler is not None
    assert (head.kind, head.pooling, head.hidden) == ("head", "first", True)
    torch.testing.assert_close(tensors["head.dense.weight"], (bert.bert.pooler.weights()[0] + b @ a / 2).T)


@pytest.mark.parametrize(
    ("ranks", "alphas", "version", "alpha"),
    [
        ({"query": 2}, {"self.query": 16}, "0.13.2", 4),
        ({"query": 2}, {"self.query": 16}, "0.14.0", 16),
        ({"query": 2}, {"self.query": 16}, "0.21.2", 16),
        ({"query": 2}, {"query": 16}, None, 16),
        ({}, {"query": 16}, None, 16),
        ({"^bert.*query": 5}, {}, None, 4),
        ({"^bert.*query": 5}, {"^bert.*query": 16}, None, 4),
        ({"^bert.*query": 2}, {"^bert.*query": 16}, "0.15.0", 16),
        ({"value": 5}, {"^bert.*query": 16}, "0.14.0", 4),
    ],
)
def test_patterns_are_read_as_the_version_that_saved_them_did(ranks, alphas, version, alpha, save_peft, bert):
    """Before 0.14 the first pattern of both tables is that of the rank and of the alpha, and before 0.15 none may begin
    with ^. Without a version a rule counts if it gives the rank that the tensors have."""
    path = save_peft(rank_pattern=ranks, alpha_pattern=alphas, peft_version=version)
    tensors, own = read_peft(path, bert).tensors, load_file(path / "adapter_model.safetensors")
    product = own[f"{QUERY}.lora_B.weight"] @ own[f"{QUERY}.lora_A.weight"]
    torch.testing.assert_close(tensors["lora.down"][0, 0] @ tensors["lora.up"][0, 0], alpha / 2 * product.T)


def test_patterns_that_versions_read_differently_are_refused_without_a_version(save_peft, bert):
    """The tensors tell the rank, but not the alpha."""
    path = save_peft(rank_pattern={"query": 2}, alpha_pattern={"self.query": 16})
    with pytest.raises(
        AdapterError, match=r"self\.query' the alpha 16 in later versions of PEFT and 4 in earlier ones"
    ):
        read_peft(path, bert)


def test_a_prefix_leaves_the_rest_of_the_positions_to_the_text(save_peft: SavePeft, bert: Backbone) -> None:
    """The longest text is shorter by the length of the prefix; a prefix that leaves no room for a text is refused."""
    config, length = bert.config, bert.config.max_tokens - 3
    settings = {"peft_type": "PREFIX_TUNING", "num_virtual_tokens": length, "num_transformer_submodules": 1}
    off = {"r": None, "lora_alpha": None, "target_modules": None}
    tensors = {f"{QUERY}.lora_A.weight": None, f"{QUERY}.lora_B.weight": None}
    table = torch.randn(length + 1, prefix_width(config))
    path = save_peft({**tensors, "prompt_embeddings": table[:length]}, **settings, **off)
    assert import_adapter(Import("peft", path, "short"), bert).manifest.task.max_length == 3
    settings["num_virtual_tokens"] = length + 1
    (path / "adapter_config.json").write_text(json.dumps(settings))
    with pytest.raises(AdapterError, match=f"num_virtual_tokens is {length + 1}; PEFT counts them among the 96 pos"):
        read_peft(path, bert)


@pytest.mark.parametrize("other", ["roberta", "electra", "mpnet"])
def test_an_adapter_of_another_family_is_refused(other, save_peft, request):
    """The maps of these families have the same sizes, and some also the same names."""
    with pytest.raises(AdapterError, match=f"modules begin with 'bert.'; this backbone's family is {other}"):
        read_peft(save_peft(), request.getfixturevalue(other))


def test_the_library_of_the_class_tells_the_family(save_peft: SavePeft, bert: Backbone) -> None:
    """An encoder alone has names without the prefix of a family."""
    tensors = {QUERY.replace(".bert.", ".") + f".lora_{side}.weight": torch.ones(size) for side, size in SIDES.items()}
    library = "transformers.models.{}.modeling_{}"
    mapping = {"base_model_class": "BertModel", "parent_library": library.format("bert", "bert")}
    path = save_peft({**NO_LORA, **tensors}, task_type=None, auto_mapping=mapping)
    assert read_peft(path, bert).pieces
    settings = json.loads((path / "adapter_config.json").read_text())
    settings["auto_mapping"]["parent_library"] = library.format("electra", "electra")
    (path / "adapter_config.json").write_text(json.dumps(settings))
    with pytest.raises(
        AdapterError, match=r"parent_library is transformers\.models\.electra.*; this backbone's family is bert"
    ):
        read_peft(path, bert)


def test_files_of_torch_are_read_as_well(save_peft: SavePeft, bert: Backbone) -> None:
    directory = save_peft()
    whole = directory / "adapter_model.safetensors"
    expected = read_peft(directory, bert).tensors
    torch.save(load_file(whole), directory / "adapter_model.bin")
    whole.unlink()
    found = read_peft(directory, bert).tensors
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


LAYER = QUERY.removesuffix(".attention.self.query")


def test_factors_of_inputs_move_to_where_they_are_the_same(save_peft: SavePeft, bert: Backbone) -> None:
    """The input of an attention's output map is that of its values; other layers keep factors of 1."""
    hidden, inner = bert.config.hidden_size, bert.config.intermediate_size
    shapes = {
        "attention.self.key": (hidden, 1), "attention.self.value": (hidden, 1),
        "attention.output.dense": (1, hidden), "output.dense": (1, inner),
    }  # fmt: skip
    drawn = {f"{LAYER}.{module}.ia3_l": torch.randn(shape) for module, shape in shapes.items()}
    (piece,) = read_peft(save_peft({**NO_LORA, **drawn}, peft_type="IA3", r=0, lora_alpha=0), bert).pieces
    key, value, output, second = (tensor.flatten() for tensor in drawn.values())
    assert set(piece.tensors) == {"key", "value", "activated"}
    for site, factors in {"key": key, "value": value * output, "activated": second}.items():
        torch.testing.assert_close(piece.tensors[site][0], factors)
        assert (piece.tensors[site][1:] == 1).all()


@pytest.mark.parametrize(
    ("module", "shape", "sentence"),
    [
        (
            "attention.self.query",
            (1, 48),
            "factors of the input of 'query' are not supported; those of inputs may be at",
        ),
        ("attention.self.query", (32, 1), "the factors of 'query' are 32; on this backbone they must be 48"),
        ("attention.self.query", (48, 2), r"has shape \[48, 2\]; it must be \[any, 1\] or \[1, any\]"),
        ("attention.self", (48, 1), r"IA3 adapts 'encoder\.layer\.0\.attention\.self'; only linear maps of this"),
    ],
)
def test_factors_that_do_not_fit_are_refused(module, shape, sentence, save_peft, bert):
    with pytest.raises(AdapterError, match=sentence):
        read_peft(save_peft({**NO_LORA, f"{LAYER}.{module}.ia3_l": torch.ones(shape)}, peft_type="IA3"), bert)


@torch.inference_mode()
def test_dora_divides_by_the_norms_of_the_adapted_weights(save_peft, bert, bert_directory):
    """The answers are those of a backbone whose query map is m (W + s B A) / |W + s B A|, row by row."""
    path = save_peft({f"{QUERY}.lora_magnitude_vector": torch.rand(48) + 0.5}, use_dora=True)
    own = {n.removeprefix("base_model.model."): t for n, t in load_file(path / "adapter_model.safetensors").items()}
    model = BertForSequenceClassification.from_pretrained(bert_directory).eval()
    model.classifier.load_state_dict({name: own[f"classifier.{name}"] for name in ("weight", "bias")})
    query, name = model.bert.encoder.layer[0].attention.self.query, QUERY.removeprefix("base_model.model.")
    weight = query.weight + 2 * own[f"{name}.lora_B.weight"] @ own[f"{name}.lora_A.weight"]
    query.weight.copy_(weight * (own[f"{name}.lora_magnitude_vector"] / weight.norm(dim=1))[:, None])
    check_answers(Import("peft", path, "imported"), bert, answers(model, bert))


def test_vera_is_a_lora_of_parts_of_its_shared_matrices(save_peft: SavePeft, bert: Backbone) -> None:
    """Each map takes as many columns of A and rows of B as it has; without these matrices the adapter is refused."""
    widths = {"attention.self.query": (48, 48), "output.dense": (bert.config.intermediate_size, 48)}
    a, b = torch.randn(2, bert.config.intermediate_size), torch.randn(48, 2)
    sizes = {"b": 48, "d": 2}
    own = {f"{LAYER}.{module}.vera_lambda_{one}": torch.randn(n) for module in widths for one, n in sizes.items()}
    drawn = {**own, "base_model.vera_A": a, "base_model.vera_B": b}
    path = save_peft({**NO_LORA, **drawn}, peft_type="VERA", lora_alpha=0)
    (piece,) = read_peft(path, bert).pieces
    for (module, (before, _)), suffix in zip(widths.items(), ("", ".ffn_output"), strict=True):
        outer, inner = (own[f"{LAYER}.{module}.vera_lambda_{name}"] for name in "bd")
        found = piece.tensors[f"down{suffix}"][0, 0] @ piece.tensors[f"up{suffix}"][0, 0]
        torch.testing.assert_close(found.T, outer[:, None] * b @ (inner[:, None] * a[:, :before]))
    tensors = load_file(path / "adapter_model.safetensors")
    save_file({n: t for n, t in tensors.items() if n != "base_model.vera_A"}, path / "adapter_model.safetensors")
    with pytest.raises(AdapterError, match="save the adapter with save_projection=True"):
        read_peft(path, bert)


SHARED = "base_model.model.model.layers.1.self_attn"


def test_keys_and_values_that_heads_share_are_adapted_for_all_of_them(save_peft, eurobert, eurobert_directory):
    """An imported LoRA of both answers as transformers' EuroBERT with the products in its narrow maps."""
    torch.manual_seed(3)
    model = EuroBertForTokenClassification.from_pretrained(eurobert_directory, num_labels=2).eval()
    drawn = {f"base_model.model.classifier.{name}": one for name, one in model.classifier.state_dict().items()}
    for part in ("k", "v"):
        a, b = torch.randn(2, 48) / 7, torch.randn(24, 2)
        drawn |= {f"{SHARED}.{part}_proj.lora_A.weight": a, f"{SHARED}.{part}_proj.lora_B.weight": b}
        getattr(model.model.layers[1].self_attn, f"{part}_proj").weight.data += 2 * b @ a
    path = save_peft(NO_LORA | drawn, task_type="TOKEN_CLS")
    check_answers(Import("peft", path, "imported"), eurobert, answers(model, eurobert))


def test_shared_keys_of_another_number_are_refused(save_peft: SavePeft, eurobert: Backbone) -> None:
    module = f"{SHARED}.k_proj"
    tensors = {f"{module}.lora_A.weight": torch.ones(2, 48), f"{module}.lora_B.weight": torch.ones(48, 2)}
    with pytest.raises(AdapterError, match=r"k_proj.lora_B.weight' has 48 rows; it must have 24"):
        read_peft(save_peft(NO_LORA | tensors, task_type="TOKEN_CLS"), eurobert)


def _deberta_lora(module: str) -> dict[str, torch.Tensor]:
    name = f"base_model.model.deberta.encoder.layer.1.attention.self.{module}"
    return {f"{name}.lora_A.weight": torch.randn(2, 48) / 7, f"{name}.lora_B.weight": torch.randn(48, 2)}


@pytest.mark.parametrize("modules", [("value_proj",), ("query_proj", "key_proj", "value_proj")], ids=",".join)
def test_lora_of_a_deberta_answers_as_there(modules, save_peft, deberta_directory, tmp_path):
    """With a classifier. Queries and keys need maps that distances do not share."""
    torch.manual_seed(3)
    shared = modules == ("value_proj",)
    model = DebertaV2ForSequenceClassification.from_pretrained(
        deberta_directory, num_labels=2, share_att_key=shared, initializer_range=0.3
    ).eval()
    model.deberta.save_pretrained(tmp_path / "own")
    (tmp_path / "own" / "tokenizer.json").write_bytes((deberta_directory / "tokenizer.json").read_bytes())
    head = {f"base_model.model.{name}": one for name, one in model.state_dict().items() if "deberta" not in name}
    drawn = {name: one for module in modules for name, one in _deberta_lora(module).items()}
    for module in modules:
        a, b = _deberta_pair(drawn, module)
        model.deberta.encoder.layer[1].attention.self.get_submodule(module).weight.data += 2 * b @ a
    path = save_peft(NO_LORA | drawn | head)
    backbone = load_backbone(str(tmp_path / "own"))
    check_answers(Import("peft", path, "imported"), backbone, answers(model, backbone))


def _deberta_pair(drawn: dict[str, torch.Tensor], module: str) -> list[torch.Tensor]:
    return [one for side in "AB" for name, one in drawn.items() if f".{module}.lora_{side}" in name]


def test_lora_of_queries_that_distances_share_is_refused(save_peft: SavePeft, deberta: Backbone) -> None:
    """Published DeBERTas map distances too by `query_proj`, which an adapter here leaves as they are."""
    rule = (
        r"LoRA adapts 'encoder.layer.1.attention.self.query'; on a DeBERTa whose distances share the maps of queries "
        "and keys .share_att_key. only value_proj and the maps named dense of its layers are supported"
    )
    with pytest.raises(AdapterError, match=rule):
        read_peft(save_peft(NO_LORA | _deberta_lora("query_proj") | _deberta_lora("value_proj")), deberta)


@pytest.mark.parametrize("use_dora", [True, False])
def test_frozen_weights_that_have_changed_since_they_were_loaded_are_refused(
    use_dora: bool, save_peft: SavePeft, bert_directory: Path, tmp_path: Path
) -> None:
    """DoRA's norms would be those of other weights. Other adapters read nothing there."""
    shutil.copytree(bert_directory, tmp_path / "bert")
    backbone, file = load_backbone(str(tmp_path / "bert")), tmp_path / "bert" / "model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith("layer.0.attention.self.query.weight"))
    save_file(tensors | {name: tensors[name] * 2}, file)
    path = save_peft({f"{QUERY}.lora_magnitude_vector": torch.ones(48)} if use_dora else {}, use_dora=use_dora)
    if not use_dora:
        read_peft(path, backbone)
        return
    with pytest.raises(AdapterError, match=f"the files of backbone {tmp_path}/bert have changed since it was loaded"):
        read_peft(path, backbone)
