"""Fuzzes the importers of PEFT and AdapterHub: the configuration, and PEFT's file of tensors; and the configurations of
the authors' checkpoints, beside tensors that fit none of them.

    python tests/fuzz/fuzz_importers.py CORPUS -dict=tests/fuzz/importers.dict -max_total_time=600

The first byte chooses the importer and the file, the rest is the file. Any exception but an `AdapterError` of readable
lines, and any input that takes a minute or three gigabytes ends it.
"""

import json
import sys
import tempfile
from pathlib import Path

import atheris
import torch
from safetensors.torch import save, save_file
from transformers import BertConfig, BertModel

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["peltier_adapters.importers"]):
    from peltier_adapters.importers.run import Import, TaskOptions, import_adapter
from peltier_adapters.errors import AdapterError
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone

from tests.support.small_tokenizers import word_piece

HIDDEN = 16
# The importer, and the file that the input replaces.
TARGETS = (
    ("peft", "adapter_config.json"),
    ("peft", "adapter_model.safetensors"),
    ("adapterhub", "adapter_config.json"),
    ("adapterhub", "head_config.json"),
    ("unipelt", "config.json"),
    ("adamix", "config.json"),
    ("compacter", "config.json"),
)
QUERY = "encoder.layer.0.attention.self.query"
PEFT = {"peft_type": "LORA", "task_type": "SEQ_CLS", "r": 2, "lora_alpha": 4, "target_modules": ["query"]}
HUB = {"name": "intents", "model_type": "bert", "hidden_size": HIDDEN, "version": "adapters.1.3.0"}
HUB_LORA = {"architecture": "lora", "r": 2, "alpha": 8, "composition_mode": "add"}
HUB_HEAD = {"config": {"head_type": "classification", "num_labels": 2, "layers": 1}, "name": "intents"}


def write_valid(folder: Path) -> Backbone:
    """A backbone, and for each importer a folder with all files; the configurations are seeds."""
    tokenizer = word_piece()
    sizes = {"num_hidden_layers": 1, "hidden_size": HIDDEN, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertConfig(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=32, **sizes)
    BertModel(config).save_pretrained(folder / "backbone")
    tokenizer.save(str(folder / "backbone" / "tokenizer.json"))
    for origin in {origin for origin, _ in TARGETS}:
        (folder / origin).mkdir()
        (folder / origin / "config.json").write_text(json.dumps(config.to_dict()))
    (folder / "peft" / "adapter_config.json").write_text(json.dumps(PEFT))
    save_file(_peft_tensors(), folder / "peft" / "adapter_model.safetensors")
    (folder / "adapterhub" / "adapter_config.json").write_text(json.dumps({**HUB, "config": HUB_LORA}))
    (folder / "adapterhub" / "head_config.json").write_text(json.dumps({**HUB, **HUB_HEAD}))
    own = {f"bert.{QUERY}.loras.intents.lora_{name}": torch.randn(shape) for name, shape in _lora_shapes().items()}
    torch.save(own, folder / "adapterhub" / "pytorch_adapter.bin")
    for origin in ("unipelt", "adamix", "compacter"):
        save_file(_peft_tensors(), folder / origin / "model.safetensors")
    return load_backbone(str(folder / "backbone"))


def _lora_shapes() -> dict[str, tuple[int, int]]:
    return {"A": (2, HIDDEN), "B": (HIDDEN, 2)}


def _peft_tensors() -> dict[str, torch.Tensor]:
    maps = {f"base_model.model.bert.{QUERY}.lora_{one}.weight": torch.randn(at) for one, at in _lora_shapes().items()}
    head = {"classifier.weight": torch.randn(2, HIDDEN), "classifier.bias": torch.randn(2)}
    return maps | {f"base_model.model.{name}": tensor for name, tensor in head.items()}


def seeds() -> list[bytes]:
    """One valid file for each target."""
    configs = (PEFT, None, {**HUB, "config": HUB_LORA}, {**HUB, **HUB_HEAD}, {"adapter_config": {}}, {}, {})
    files = [save(_peft_tensors()) if one is None else json.dumps(one).encode() for one in configs]
    return [bytes([number]) + file for number, file in enumerate(files)]


class Fuzzer:
    """Replaces one file, and imports."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._backbone = folder, write_valid(folder)
        self._valid = {(origin, name): self._read(folder / origin / name) for origin, name in TARGETS}

    def fuzz(self, data: bytes) -> None:
        """The origin is the folder's name too."""
        if not data:
            return
        origin, name = target = TARGETS[data[0] % len(TARGETS)]
        file = self._folder / origin / name
        file.write_bytes(data[1:])
        reasons = ""
        try:
            import_adapter(Import(origin, file.parent, "imported", options=TaskOptions(max_length=16)), self._backbone)
        except AdapterError as error:
            reasons = str(error)
            assert reasons, "a refusal without a reason"
        file.write_bytes(self._valid[target])
        assert all(line.isprintable() for line in reasons.splitlines()), reasons

    @staticmethod
    def _read(file: Path) -> bytes:
        return file.read_bytes() if file.exists() else b"{}"


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--seeds":
        for number, seed in enumerate(seeds()):
            (Path(sys.argv[2]) / f"seed-{number}").write_bytes(seed)
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        fuzzer = Fuzzer(Path(folder))
        atheris.Setup([*sys.argv, "-timeout=60", "-rss_limit_mb=3072"], fuzzer.fuzz)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
