"""Small directories of both libraries, written by hand, that a test may damage; and what an import answers."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers import extensions  # noqa: F401 - it registers its readers
from peltier_adapters.importers.run import Import, TaskOptions, import_adapter
from peltier_adapters.inputs import encode_input
from peltier_adapters.residency.bank import Banks
from peltier_backbone.backbone import Backbone
from safetensors.torch import save_file

SavePeft = Callable[..., Path]
SaveAdapterHub = Callable[..., Path]
TEXTS = ("a good film", "the plot was not very good , and the actor is dull", "bad")
_ADAPTED = re.compile(r"base_model\.model\.(.*)\.(lora_|ia3_|vera_|ln_tuning_).*")
TARGETS = ("good", "film", "bad actor")


def served(origin: str, path: Path, backbone: Backbone, options: TaskOptions | None = None) -> torch.Tensor:
    """What the imported adapter answers to `TEXTS` in one batch, [texts, outputs]."""
    return torch.stack(outputs(Import(origin, path, "imported", options=options or TaskOptions()), backbone))


def outputs(wanted: Import, backbone: Backbone) -> list[torch.Tensor]:
    """The output for each of `TEXTS`, [outputs] or [tokens, outputs]; a task of pairs reads single texts here."""
    artifact = import_adapter(wanted, backbone)
    resident, task = Banks(backbone).add(artifact), artifact.manifest.task
    single = task if backbone.config.generates else task.model_copy(update={"inputs": "single"})
    rows = [Row(encode_input(backbone, single, text), resident) for text in TEXTS]
    return [output.logits for output in forward(backbone, rows)]


@torch.no_grad()
def answers(model, backbone):
    """What a model of transformers answers to each of `TEXTS`: its logits, or the start and the end of each token."""
    found = [model(torch.tensor([backbone.tokenizer.encode(text).ids])) for text in TEXTS]
    spans = "start_logits" in found[0]
    return [torch.stack((one.start_logits[0], one.end_logits[0]), -1) if spans else one.logits[0] for one in found]


def check_answers(wanted, backbone, expected):
    """Fails unless the imported adapter answers each of `TEXTS` as `expected`."""
    for found, own in zip(outputs(wanted, backbone), expected, strict=True):
        torch.testing.assert_close(found, own, rtol=0, atol=1e-4)


def check_each_is_needed(read, tensors, path, backbone, aliases="$"):
    """Fails unless `read` refuses the file without any one of its `tensors`, but for `aliases`, and reads it whole."""
    for name in tensors:
        if re.fullmatch(aliases, name):
            continue
        torch.save({other: one for other, one in tensors.items() if other != name}, path)
        with pytest.raises(AdapterError):
            read(path.parent, backbone)
    torch.save(tensors, path)
    read(path.parent, backbone)


@pytest.fixture(autouse=True)
def _reads_here(reads_here: None) -> None:
    """No test of an importer is about the process that reads pickles."""


@pytest.fixture
def save_peft(tmp_path: Path, bert: Backbone) -> SavePeft:
    """`save_peft(tensors=…, **settings)`: LoRA on layer 0's query and a head of two outputs; None drops a tensor. The
    configuration names the modules that have tensors."""

    def save(tensors: dict[str, torch.Tensor | None] | None = None, **settings: Any) -> Path:
        directory, hidden = tmp_path / "intents", bert.config.hidden_size
        directory.mkdir()
        query = "base_model.model.bert.encoder.layer.0.attention.self.query"
        drawn = {
            f"{query}.lora_A.weight": torch.randn(2, hidden),
            f"{query}.lora_B.weight": torch.randn(hidden, 2),
            "base_model.model.classifier.weight": torch.randn(2, hidden),
            "base_model.model.classifier.bias": torch.randn(2),
        } | (tensors or {})
        save_file(
            {name: one for name, one in drawn.items() if one is not None}, directory / "adapter_model.safetensors"
        )
        modules = [match[1] for name, one in drawn.items() if one is not None and (match := _ADAPTED.fullmatch(name))]
        config = {"peft_type": "LORA", "task_type": "SEQ_CLS", "r": 2, "lora_alpha": 4, "target_modules": modules}
        (directory / "adapter_config.json").write_text(json.dumps(config | settings))
        return directory

    return save


@pytest.fixture
def bare(save_peft: SavePeft) -> Path:
    """An adapter without a head: LoRA on layer 0's query, whose scale is 2."""
    return save_peft({f"base_model.model.classifier.{name}": None for name in ("weight", "bias")})


@pytest.fixture
def save_adapterhub(tmp_path: Path, bert: Backbone) -> SaveAdapterHub:
    """`save_adapterhub(tensors=…, config=…, **outer)`: LoRA on layer 0's query; None drops a tensor."""

    def save(tensors=None, settings=None, **outer):
        directory, hidden = tmp_path / "intents", bert.config.hidden_size
        directory.mkdir()
        query = "bert.encoder.layer.0.attention.self.query.loras.intents"
        drawn = {f"{query}.lora_A": torch.randn(2, hidden), f"{query}.lora_B": torch.randn(hidden, 2)} | (tensors or {})
        torch.save({name: one for name, one in drawn.items() if one is not None}, directory / "pytorch_adapter.bin")
        lora = {"architecture": "lora", "r": 2, "alpha": 8, "attn_matrices": ["q"], "leave_out": [1, 2]}
        whole = {
            "name": "intents",
            "model_type": "bert",
            "hidden_size": hidden,
            "version": "adapters.1.3.0",
            "config": lora | (settings or {}),
        }
        (directory / "adapter_config.json").write_text(json.dumps(whole | outer))
        return directory

    return save
