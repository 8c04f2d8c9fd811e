import json
import re
from pathlib import Path

import pytest
import torch
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.extensions.authors import read_unipelt
from peltier_adapters.importers.run import TaskOptions
from peltier_backbone.backbone import Backbone
from safetensors.torch import load_file

from tests.adapters_store.importers.conftest import TEXTS, check_each_is_needed, served
from tests.adapters_store.importers.extensions.authors.bert import AuthorsBert

LENGTH = 96  # what the authors' 128 is on a backbone of 96 positions
State = dict[str, torch.Tensor]


def _linear(name: str, out: int, width: int, scale: float = 0.3) -> State:
    return {f"{name}.weight": torch.randn(out, width) * scale, f"{name}.bias": torch.randn(out) * scale}


def _state(directory: Path, parts: str, num_layers: int = 3, hidden: int = 48) -> State:
    """The backbone, a classifier and the modules of `parts` (p, l, a), by the authors' names."""
    torch.manual_seed(3)
    state = {f"bert.{name}": tensor for name, tensor in load_file(directory / "model.safetensors").items()}
    state |= _linear("classifier", 3, hidden)
    if "p" in parts:
        state["bert.encoder.prefix_enc_embed.weight"] = torch.randn(4, hidden)
        state |= _linear("bert.encoder.prefix_embed_MLP.0", 8, hidden)
        state |= _linear("bert.encoder.prefix_embed_MLP.2", 2 * num_layers * hidden, 8)
    for i in range(num_layers):
        layer = f"bert.encoder.layer.{i}"
        state |= _linear(f"{layer}.attention.self.prefix_gate", 1, hidden)  # there even without a prefix
        for name in ("query", "value") if "l" in parts else ():
            linear = f"{layer}.attention.self.{name}"
            state |= {
                f"{linear}.lora_A": torch.randn(4, hidden) * 0.3,
                f"{linear}.lora_B": torch.randn(hidden, 4) * 0.3,
            }
            state |= _linear(f"{linear}.lora_gate", 1, hidden)
        if "a" in parts:
            adapter = f"{layer}.output.adapters.mrpc"
            state |= _linear(f"{adapter}.adapter_down.0", 8, hidden) | _linear(f"{adapter}.adapter_up", hidden, 8)
            state |= _linear(f"{adapter}.gate", 1, hidden)
    return state


def _expected(model: AuthorsBert, backbone: Backbone, length: int) -> torch.Tensor:
    rows = [list(backbone.tokenizer.encode(text).ids) for text in TEXTS]
    return torch.stack([model(ids, max(length - len(ids), 0)) for ids in rows])


@pytest.mark.parametrize("parts", ["pla", "pa", "a", "l", "p"])
def test_gated_checkpoints_answer_as_the_authors_modules_do(parts, bert, bert_directory, tmp_path):
    """Gates average over padding too, because the authors pad every input; another length changes the answers."""
    state = _state(bert_directory, parts)
    torch.save(state, tmp_path / "pytorch_model.bin")
    model = AuthorsBert(state, "bert", 3, 4, 1e-12)
    expected = _expected(model, bert, LENGTH)
    found = served("unipelt", tmp_path, bert, TaskOptions(max_length=LENGTH))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    assert not torch.allclose(expected, _expected(model, bert, 40), atol=1e-3)


@pytest.mark.parametrize("parts", ["pla", "pl"])
def test_checkpoints_without_gates_take_the_scale_of_their_settings(parts, bert, bert_directory, tmp_path):
    """Saved gates then have no effect, LoRA is scaled by alpha / r, and nothing is padded."""
    state = _state(bert_directory, parts)
    torch.save(state, tmp_path / "pytorch_model.bin")
    flags = {f"add_{part}_gate": False for part in ("lora", "prefix", "adapter")}
    (tmp_path / "config.json").write_text(json.dumps({"lora_alpha": 6, **flags}))
    found = served("unipelt", tmp_path, bert)
    expected = _expected(AuthorsBert(state, "bert", 3, 4, 1e-12, gated=False, scale=1.5), bert, 0)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "tensor", "sentence"),
    [
        ("bert.encoder.layer.0.output.dense.bias", torch.ones(48), "the frozen weights '0.output.bias' differ"),
        ("bert.encoder.layer.0.output.adapters.cola.adapter_up.bias", torch.ones(48), "2 tasks: cola, mrpc"),
        ("bert.encoder.layer.0.attention.self.query.lora_B", torch.ones(32, 4), r"it must be \[48, 4\]"),
        (
            "bert.encoder.layer.0.attention.output.adapters.mrpc.adapter_up.bias",
            torch.ones(48),
            "belongs to an adapter at another place; only adapters after the feed-forward blocks are supported",
        ),
        ("bert.encoder.layer.1.output.adapters.mrpc.gate.weight", torch.ones(1, 96), r"it must be \[1, 48\]"),
        ("bert.encoder.prefix_embed_MLP.2.weight", torch.ones(96, 8), r"it must be \[288, 8\]"),
    ],
)
def test_what_does_not_fit_is_refused(name, tensor, sentence, bert, bert_directory, tmp_path):
    torch.save(_state(bert_directory, "pla") | {name: tensor}, tmp_path / "pytorch_model.bin")
    with pytest.raises(AdapterError, match=sentence):
        read_unipelt(tmp_path, bert)


@pytest.mark.parametrize("hidden", [96, 24])
def test_an_adapter_of_another_width_is_refused(hidden, bert, bert_directory, tmp_path):
    """It is neither cut nor padded, even if the file has no other tensor of its backbone."""
    whole = _state(bert_directory, "a", hidden=hidden)
    torch.save({name: one for name, one in whole.items() if ".adapters." in name}, tmp_path / "pytorch_model.bin")
    with pytest.raises(AdapterError, match=rf"has shape \[8, {hidden}\]; on this backbone it must be \[any, 48\]"):
        read_unipelt(tmp_path, bert)


def test_a_central_gate_and_a_plain_model_are_refused(bert: Backbone, bert_directory: Path, tmp_path: Path) -> None:
    """Settings that change the answers are checked, and a model without an adapter is refused."""
    torch.save(_state(bert_directory, ""), tmp_path / "pytorch_model.bin")
    with pytest.raises(AdapterError, match="has no prefix, LoRA or adapter"):
        read_unipelt(tmp_path, bert)
    (tmp_path / "config.json").write_text(json.dumps({"add_central_gate": True}))
    with pytest.raises(AdapterError, match="add_central_gate is true, which is not supported"):
        read_unipelt(tmp_path, bert)


def _own(**settings: object) -> dict[str, object]:
    """The authors' `config.json` with an adapter's settings in it, by a hash as the library of theirs saves them."""
    return {"adapters": {"adapters": {"mrpc": "9076f36a74755ac4"}, "config_map": {"9076f36a74755ac4": settings}}}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (_own(non_linearity="swish"), 'non_linearity is "swish", which is not supported; it must be "relu"'),
        (_own(original_ln_before=False), "original_ln_before is false, which is not supported"),
        (_own(phm_layer=True), "phm_layer is true, which this importer does not know"),
        ({"adapters": {"adapters": {"mrpc": "houlsby"}, "config_map": {}}}, "is 'houlsby'; only 'pfeiffer'"),
        ({"drop_first_prefix_layers_enc": [0]}, r"drop_first_prefix_layers_enc is \[0\], which is not supported"),
        ({"lora_r": 8}, "lora_A' has the rank 4; its configuration says 8"),
        (_own(reduction_factor=16), "reduction_factor promises adapters of the size 3; the checkpoint's differ"),
        (_own(leave_out=[1]), r"leave_out is \[1\], which is not supported"),
        (_own(mh_adapter=True), "mh_adapter is true, which is not supported"),
        (_own(output_adapter=False), "output_adapter is false, which is not supported"),
    ],
)
def test_settings_that_change_the_answers_are_refused(settings, sentence, bert, bert_directory, tmp_path):
    """Or that are not those of the tensors: they are read from the configuration beside the weights."""
    torch.save(_state(bert_directory, "pla"), tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(AdapterError, match=sentence):
        read_unipelt(tmp_path, bert)


@pytest.mark.parametrize("adapters", [_own(non_linearity="relu", original_ln_before=True, leave_out=[]), {}])
def test_the_authors_own_adapter_settings_are_served(adapters, bert, bert_directory, tmp_path):
    """The settings that their scripts save are the supported ones."""
    torch.save(_state(bert_directory, "a"), tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_text(json.dumps(adapters | {"add_adapter_gate": True, "hidden_size": 48}))
    assert read_unipelt(tmp_path, bert).parts[0].gated


@pytest.mark.parametrize("settings", [{"add_adapter_gate": True}, {}])
def test_a_gate_must_be_there_unless_it_is_off(settings, bert, bert_directory, tmp_path):
    """Gates are on by default, so a checkpoint without them is incomplete."""
    whole = _state(bert_directory, "a")
    torch.save({name: one for name, one in whole.items() if ".gate." not in name}, tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(AdapterError, match="add_adapter_gate is true or absent, but the checkpoint has no such gate"):
        read_unipelt(tmp_path, bert)


def test_each_tensor_of_the_authors_is_needed(bert: Backbone, bert_directory: Path, tmp_path: Path) -> None:
    """All but the gates of prefixes of a model that has no prefix, which are never used."""
    check_each_is_needed(read_unipelt, _state(bert_directory, "pla"), tmp_path / "pytorch_model.bin", bert)


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        (r"layer\.1\..*lora", "has no LoRA of 'encoder.layer.1.attention.self.query', 'encoder.layer.1.*value', which"),
        ("value.*lora", "has no LoRA of 'encoder.layer.0.attention.self.value'"),
        (r"layer\.1\..*adapters", "has no adapter in 'encoder.layer.1.output', which the authors' code"),
        (r"layer\.0\..*adapters", "has no adapter in 'encoder.layer.0.output', which the authors' code"),
    ],
)
def test_layers_and_matrices_are_whole(pattern, sentence, bert, bert_directory, tmp_path):
    """No layer is taken for one that is not adapted."""
    whole = _state(bert_directory, "pla")
    torch.save({name: one for name, one in whole.items() if not re.search(pattern, name)}, tmp_path / "a.bin")
    with pytest.raises(AdapterError, match=sentence):
        read_unipelt(tmp_path / "a.bin", bert)
