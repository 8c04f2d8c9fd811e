"""A file of PEFT has tensors of the modules that its configuration names, and no others: files that PEFT saved, each
damaged in all ways of a kind. The answers of those files are compared in `test_parity.py`."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.run import Import, TaskOptions, import_adapter
from peltier_backbone.backbone import Backbone
from safetensors.torch import load_file, save_file

from tests.adapters_store.importers.parity import EMBEDDINGS, backbone_of
from tests.adapters_store.importers.record_parity import SERVED, unpack

TARGETED = [case for case in SERVED["peft"] if "prefix" not in case and "prompt" not in case]
# A copy that PEFT saves beside the tensor itself.
COPIES = re.compile(r".*\.(modules_to_save|original_module)\..*")
ADAPTER = re.compile(r"(.*)\.(lora_.*|ia3_l|vera_lambda_.|ln_tuning_layers\..*)")


class Saved:
    """What PEFT saved for one case, which a test damages."""

    def __init__(self, case: str, folder: Path, request: pytest.FixtureRequest) -> None:
        self._folder = unpack("peft", case, folder)
        self._backbone: Backbone = backbone_of(self._folder, request)
        self.options = TaskOptions(pooling="mean" if case in EMBEDDINGS else None)
        self._path = self._folder / "adapter_model.safetensors"
        self.tensors: Mapping[str, torch.Tensor] = load_file(self._path)
        self.settings = json.loads((self._folder / "adapter_config.json").read_text())
        self.load({})
        self.modules = {match[1] for name in self.tensors if (match := ADAPTER.fullmatch(name))}

    def load(self, changes: Mapping[str, torch.Tensor | None], **settings: Any) -> None:
        tensors = {name: one for name, one in {**self.tensors, **changes}.items() if one is not None}
        save_file(tensors, self._path)
        (self._folder / "adapter_config.json").write_text(json.dumps(self.settings | settings))
        import_adapter(Import("peft", self._folder, "imported", options=self.options), self._backbone)

    def of(self, modules: str) -> dict[str, None]:
        """The tensors of the modules that match, without their values."""
        return {name: None for name in self.tensors if re.search(modules, name) and ADAPTER.fullmatch(name)}


@pytest.fixture
def saved(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], Saved]:
    return lambda case: Saved(case, tmp_path, request)


@pytest.mark.parametrize("case", SERVED["peft"])
def test_a_file_without_one_of_its_tensors_is_refused(case: str, saved: Callable[[str], Saved]) -> None:
    """Each tensor of what PEFT saved is missed, except for copies of others."""
    adapter = saved(case)
    for name in adapter.tensors:
        if COPIES.fullmatch(name):
            adapter.load({name: None})
            continue
        with pytest.raises(AdapterError):
            adapter.load({name: None})


@pytest.mark.parametrize("case", TARGETED)
def test_a_file_without_one_of_its_modules_is_refused(case: str, saved: Callable[[str], Saved]) -> None:
    """Of one module, one layer, or a kind of module; embeddings do not read a pooler."""
    adapter = saved(case)
    kinds = {re.escape(module.rpartition(".")[2]) for module in adapter.modules}
    missed = {rf"^{re.escape(module)}\." for module in adapter.modules} | {r"\.(layers?|block)\.1\."}
    for modules in missed | {rf"\.{kind}\.[^.]+(\.weight|\.bias)?$" for kind in kinds}:
        if case in EMBEDDINGS and "pooler" in modules:
            adapter.load(adapter.of(modules))
            continue
        with pytest.raises(AdapterError):
            adapter.load(adapter.of(modules))


@pytest.mark.parametrize("case", TARGETED)
def test_a_tensor_that_no_setting_promises_is_refused(case: str, saved: Callable[[str], Saved]) -> None:
    """PEFT would ignore the tensors of a module that its configuration excludes or does not name."""
    adapter = saved(case)
    for module in adapter.modules:
        own = module.removeprefix("base_model.model.")
        with pytest.raises(AdapterError, match=f"of '{re.escape(own)}', which target_modules of .* does not promise"):
            adapter.load({}, exclude_modules=re.escape(own))
    with pytest.raises(AdapterError, match="does not promise"):
        adapter.load({}, target_modules=["none"])


@pytest.mark.parametrize(
    ("case", "settings", "sentence"),
    [
        ("bert-lora-patterns", {"r": 3}, "value.lora_A.weight' has the rank 4; its configuration says 3"),
        ("bert-lora-patterns", {"rank_pattern": {}}, "query.lora_A.weight' has the rank 2; its configuration says 4"),
        ("bert-lora-patterns", {"rank_pattern": {"query": "2"}}, "rank_pattern is {'query': '2'}; it must map names"),
        ("bert-dora-everywhere", {"r": 5}, "dense.lora_A.weight' has the rank 4; its configuration says 5"),
        ("t5_gated-dora", {"use_dora": False}, "use_dora is false, and .* says otherwise"),
        ("bert-vera", {"r": 5}, r"vera_A' has shape \[6, .*\]; on this backbone it must be \[5, any\]"),
        ("t5-prompt", {"num_virtual_tokens": 4}, "the prompt has 10 rows; .* says 2 times 4"),
        ("t5-prompt", {"num_transformer_submodules": 1}, "the prompt has 10 rows; .* says 1 times 5"),
        ("bert-prefix-projected", {"num_virtual_tokens": 3}, r"has shape \[4, .*\]; on this backbone it must be \[3,"),
        ("bert-lora-patterns", {"target_modules": ["query"]}, "has LoRA of .*'bert.*value.*', which target_modules of"),
        ("bert-lora-patterns", {"target_modules": ["query", "value", "key"]}, "has no LoRA of 'bert.*.key', .* promis"),
        ("bert-lora-patterns", {"target_modules": ".*(query|value|key)"}, "has no LoRA of 'bert.*.key', .* promises"),
        ("bert-lora-patterns", {"target_modules": "all-linear"}, "has no LoRA of 'bert.encoder.*' and 10 more, which"),
        ("bert-lora-patterns", {"target_modules": None}, "target_modules is null; it must name the modules"),
        ("bert-lora-patterns", {"target_modules": "("}, "target_modules has an invalid regular expression"),
        ("bert-lora-patterns", {"target_modules": 3}, "target_modules is 3; it must be a list of names"),
        ("bert-lora-patterns", {"exclude_modules": "("}, "exclude_modules has an invalid regular expression"),
        ("bert-lora-patterns", {"layers_to_transform": [0, 1]}, "has LoRA of '.*layer.2.*', which target_modules of"),
        ("bert-lora-patterns", {"layers_to_transform": "0"}, "layers_to_transform is '0'; it must be integers"),
        ("bert-lora-ffn", {"layers_to_transform": None}, "has no LoRA of 'bert.encoder.layer.2.*' .*promises"),
        ("bert-lora-ffn", {"layers_to_transform": 1}, "has LoRA of 'bert.encoder.layer.0.*' .*does not promise"),
        ("bert-lora-ffn", {"layers_pattern": "block"}, "has LoRA of 'bert.encoder.layer.0.*' .*does not promise"),
        ("bert-lora-ffn", {"layers_pattern": "a{9999999999}"}, "layers_pattern has an invalid regular expression"),
        ("bert-lora-ffn", {"layers_pattern": "("}, "layers_pattern has an invalid regular expression"),
        ("t5-lora-everywhere", {"layers_to_transform": [0]}, "has LoRA of '.*', .* does not promise"),
        ("bert-ia3", {"target_modules": ["key", "value", "dense"]}, "has no IA3 of .* promises"),
        ("bert-ia3", {"feedforward_modules": []}, "factors of the inputs of 'bert.*output.dense', which is not among"),
        ("t5-ia3", {"feedforward_modules": ["wo", "v"]}, "factors of the outputs of '.*v', which is among"),
        ("bert-vera", {"bias": "none"}, 'has biases of .*, which bias "none" of .* does not promise'),
        ("bert-vera", {"target_modules": ["query", "key", "output.dense"]}, "has no VeRA of 'bert.*key', .* promises"),
        ("bert-lora-patterns", {"bias": "all"}, r'has no biases of .* and .* more, which bias "all" of .* promises'),
        ("bert-lora-patterns", {"bias": "lora_only"}, "PEFT before 0.21 does not save the biases of"),
        ("bert-lora-patterns", {"modules_to_save": ["pooler"]}, "has no weights of 'bert.pooler.dense', which modules"),
        ("bert-lora-patterns", {"modules_to_save": ["LayerNorm"]}, "has no weights of 'bert.*LayerNorm', .* promises"),
        ("modernbert-vera", {"modules_to_save": ["head", "final_norm"]}, "has no weights of 'model.final_norm', which"),
        ("bert-prefix-projected", {"modules_to_save": ["pooler"]}, "has no weights of 'pooler.dense', which mod"),
        ("mpnet-lora-everywhere", {"bias": "all", "peft_version": "0.20.0"}, 'has no biases of .* bias "all" of'),
        ("t5-lora-everywhere", {"bias": "all", "peft_version": "0.20.0"}, "has no weights of 'decoder.*_bias', 'encod"),
    ],
)  # fmt: skip
def test_a_configuration_that_says_other_than_its_file_is_refused(case, settings, sentence, saved):
    adapter = saved(case)
    with pytest.raises(AdapterError, match=sentence):
        adapter.load({}, **settings)


def test_copies_of_a_head_within_a_wrapper_are_compared(saved: Callable[[str], Saved]) -> None:
    """With bias "all" PEFT saves biases of a head again, by the adapter's name, and those before the training."""
    adapter = saved("roberta-lora-everywhere")
    head = "base_model.model.classifier"
    biases = {match[2]: name for name in adapter.tensors if (match := re.match(rf"({head})\.(.*\.bias)", name))}
    assert len(biases) == 2
    kept = {f"{head}.modules_to_save.default.{end}": adapter.tensors[name].clone() for end, name in biases.items()}
    old = {f"{head}.original_module.{end}": torch.ones(3) for end in biases}
    adapter.load(kept | old)
    name = f"{head}.modules_to_save.default.dense.bias"
    with pytest.raises(AdapterError, match=r"tensors '.*default.dense.bias' and 'classifier.dense.bias' must be equal"):
        adapter.load({name: adapter.tensors[biases["dense.bias"]] + 1})


def test_ranks_and_alphas_may_all_be_those_of_patterns(saved: Callable[[str], Saved]) -> None:
    """Then the default ones are not used."""
    patterns = {
        "rank_pattern": {"value": 4, "0.attention.self.query": 2, "query": 4},
        "alpha_pattern": {"query|value": 8},
    }
    saved("bert-lora-patterns").load({}, r=7, lora_alpha=1, **patterns)


@pytest.mark.parametrize("mapping", [{"base_model_class": "BertModel"}, None])
def test_an_encoder_without_a_task_type_has_no_head(mapping, saved):
    """PEFT saves the class of its model instead. Such an encoder may have been loaded without its pooler."""
    adapter = saved("bert-lora-features")
    adapter.options = TaskOptions(task_type="embedding", pooling="mean")
    adapter.load(adapter.of("pooler"), task_type=None, auto_mapping=mapping)
