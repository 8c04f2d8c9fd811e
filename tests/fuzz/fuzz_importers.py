"""Fuzzes the importers: for PEFT's methods and AdapterHub the configuration, and PEFT's files of tensors; for a SPLADE
its configurations and the tensors of its head, beside those of the backbone; and the configurations of the authors'
checkpoints, beside tensors that fit none of them.

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
from safetensors.torch import load, save, save_file
from torch import Tensor
from transformers import BertConfig, BertForPreTraining

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["peltier_adapters.importers"]):
    from peltier_adapters.importers import extensions  # noqa: F401 - it registers its readers
    from peltier_adapters.importers.run import Import, TaskOptions, import_adapter
from peltier_adapters.errors import AdapterError
from peltier_backbone.backbone import Backbone
from peltier_backbone.errors import BackboneError
from peltier_backbone.load import load_backbone

from tests.support.small_tokenizers import word_piece

HIDDEN = 16
# The importer, its folder, and the file that the input replaces. The inputs of the corpus name a target by its number,
# so new ones belong at the end.
TARGETS = (
    ("peft", "lora", "adapter_config.json"),
    ("peft", "lora", "adapter_model.safetensors"),
    ("adapterhub", "adapterhub", "adapter_config.json"),
    ("adapterhub", "adapterhub", "head_config.json"),
    ("unipelt", "unipelt", "config.json"),
    ("adamix", "adamix", "config.json"),
    ("compacter", "compacter", "config.json"),
    ("peft", "ia3", "adapter_config.json"),
    ("peft", "ia3", "adapter_model.safetensors"),
    ("peft", "vera", "adapter_config.json"),
    ("peft", "vera", "adapter_model.safetensors"),
    ("peft", "dora", "adapter_config.json"),
    ("peft", "dora", "adapter_model.safetensors"),
    ("splade", "splade", "config.json"),
    ("splade", "splade", "modules.json"),
    ("splade", "splade", "1_SpladePooling/config.json"),
    ("splade", "splade", "model.safetensors"),
)
HEAD = TARGETS.index(("splade", "splade", "model.safetensors"))  # the target whose input has the tensors of a head
_LAYER = "encoder.layer.0."
_QUERY, _OUTPUT = f"{_LAYER}attention.self.query", f"{_LAYER}output.dense"
_PEFT = {"task_type": "SEQ_CLS", "r": 2, "target_modules": ["query"]}
_LORA = {**_PEFT, "peft_type": "LORA", "lora_alpha": 4}
_INNER = ["0.output.dense"]
_IA3 = {"task_type": "SEQ_CLS", "peft_type": "IA3", "feedforward_modules": _INNER}
_IA3["target_modules"] = ["query", *_INNER]
HUB = {"name": "intents", "model_type": "bert", "hidden_size": HIDDEN, "version": "adapters.1.3.0"}
HUB_LORA = {"architecture": "lora", "r": 2, "alpha": 8, "composition_mode": "add", "attn_matrices": ["q"]}
HUB_HEAD = {"config": {"head_type": "classification", "num_labels": 2, "layers": 1}, "name": "intents"}
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.sparse_encoder.models.MLMTransformer"},
    {
        "idx": 1,
        "name": "1",
        "path": "1_SpladePooling",
        "type": "sentence_transformers.sparse_encoder.models.SpladePooling",
    },
]
POOLING = {"pooling_strategy": "max", "activation_function": "relu", "word_embedding_dimension": None}


def _maps() -> dict[str, Tensor]:
    """LoRA's."""
    return {f"bert.{_QUERY}.lora_{name}.weight": torch.randn(shape) for name, shape in _lora_shapes().items()}


def _factors() -> dict[str, Tensor]:
    """IA3's, of outputs and of inputs."""
    return {f"bert.{_QUERY}.ia3_l": torch.randn(HIDDEN, 1), f"bert.{_OUTPUT}.ia3_l": torch.randn(1, HIDDEN)}


def _vectors() -> dict[str, Tensor]:
    """VeRA's, of one map."""
    return {f"bert.{_QUERY}.vera_lambda_b": torch.randn(HIDDEN), f"bert.{_QUERY}.vera_lambda_d": torch.randn(2)}


def _saved(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """With a classifier, by PEFT's names."""
    head = {"classifier.weight": torch.randn(2, HIDDEN), "classifier.bias": torch.randn(2)}
    return {f"base_model.model.{name}": tensor for name, tensor in (tensors | head).items()}


def _shared_maps() -> dict[str, Tensor]:
    return {f"base_model.vera_{name}": torch.randn(shape) for name, shape in _lora_shapes().items()}


def _lora_shapes() -> dict[str, tuple[int, int]]:
    return {"A": (2, HIDDEN), "B": (HIDDEN, 2)}


# The configuration and the tensors of each of PEFT's methods.
METHODS: dict[str, tuple[dict[str, object], dict[str, Tensor]]] = {
    "lora": (_LORA, _saved(_maps())),
    "ia3": (_IA3, _saved(_factors())),
    "vera": ({**_PEFT, "peft_type": "VERA", "save_projection": True}, {**_saved(_vectors()), **_shared_maps()}),
    "dora": (
        {**_LORA, "use_dora": True},
        _saved(_maps() | {f"bert.{_QUERY}.lora_magnitude_vector.weight": torch.rand(HIDDEN) + 1}),
    ),
}


def write_valid(folder: Path) -> Backbone:
    """A backbone, and a folder with all files for each in `TARGETS`; the files are seeds. The backbone is a SPLADE
    with a pooler."""
    tokenizer = word_piece()
    sizes = {"num_hidden_layers": 1, "hidden_size": HIDDEN, "num_attention_heads": 2, "intermediate_size": HIDDEN}
    config = BertConfig(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=32, **sizes)
    for name in ("backbone", "splade"):
        torch.manual_seed(0)
        BertForPreTraining(config).save_pretrained(folder / name)
        tokenizer.save(str(folder / name / "tokenizer.json"))
    (folder / "splade" / "modules.json").write_text(json.dumps(MODULES))
    (folder / "splade" / "1_SpladePooling").mkdir()
    (folder / "splade" / "1_SpladePooling" / "config.json").write_text(json.dumps(POOLING))
    for name, (settings, tensors) in METHODS.items():
        (folder / name).mkdir()
        (folder / name / "adapter_config.json").write_text(json.dumps(settings))
        save_file(tensors, folder / name / "adapter_model.safetensors")
    for name in ("adapterhub", "unipelt", "adamix", "compacter"):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config.to_dict()))
    (folder / "adapterhub" / "adapter_config.json").write_text(json.dumps({**HUB, "config": HUB_LORA}))
    (folder / "adapterhub" / "head_config.json").write_text(json.dumps({**HUB, **HUB_HEAD}))
    own = {f"bert.{_QUERY}.loras.intents.lora_{name}": torch.randn(shape) for name, shape in _lora_shapes().items()}
    torch.save(own, folder / "adapterhub" / "pytorch_adapter.bin")
    head = {"heads.intents.1.weight": torch.randn(2, HIDDEN), "heads.intents.1.bias": torch.randn(2)}
    torch.save(head, folder / "adapterhub" / "pytorch_model_head.bin")
    for origin in ("unipelt", "adamix", "compacter"):
        save_file(METHODS["lora"][1], folder / origin / "model.safetensors")
    return load_backbone(str(folder / "backbone"))


def seeds(folder: Path) -> list[bytes]:
    """A valid file for each target, or one that is read to its end."""
    files = [(folder / name / file).read_bytes() for _, name, file in TARGETS]
    files[4:7] = [b'{"adapter_config": {}}', b"{}", b"{}"]
    files[HEAD] = save({name: tensor for name, tensor in load(files[HEAD]).items() if name.startswith("cls.")})
    return [bytes([number]) + file for number, file in enumerate(files)]


class Fuzzer:
    """Replaces one file, and imports."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._backbone = folder, write_valid(folder)
        for origin, name in ("adapterhub", "adapterhub"), ("splade", "splade"), *(("peft", one) for one in METHODS):
            self._import(origin, name)
        self._valid = [(folder / name / file).read_bytes() for _, name, file in TARGETS]

    def fuzz(self, data: bytes) -> None:
        """A SPLADE is a backbone too, which another error may refuse."""
        if not data:
            return
        number = data[0] % len(TARGETS)
        origin, name, replaced = TARGETS[number]
        file = self._folder / name / replaced
        file.write_bytes(self._with_backbone(data[1:]) if number == HEAD else data[1:])
        reasons = ""
        try:
            self._import(origin, name)
        except (AdapterError, BackboneError) as error:
            reasons = str(error)
            assert reasons, "a refusal without a reason"
        file.write_bytes(self._valid[number])
        assert all(line.isprintable() for line in reasons.splitlines()), reasons

    def _import(self, origin: str, name: str) -> None:
        wanted = Import(origin, self._folder / name, "imported", options=TaskOptions(max_length=16))
        import_adapter(wanted, self._backbone)

    def _with_backbone(self, head: bytes) -> bytes:
        """The file of a model with this head; without the backbone's tensors the importer would not read the head."""
        try:
            own = load(head)
        except Exception:  # no file of tensors
            return head
        whole = load(self._valid[HEAD])
        return save(own | {name: tensor for name, tensor in whole.items() if not name.startswith("cls.")})


def main() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        folder = Path(directory)
        if len(sys.argv) == 3 and sys.argv[1] == "--seeds":
            write_valid(folder)
            for number, seed in enumerate(seeds(folder)):
                (Path(sys.argv[2]) / f"seed-{number}").write_bytes(seed)
            return
        fuzzer = Fuzzer(folder)
        atheris.Setup([*sys.argv, "-timeout=60", "-rss_limit_mb=3072"], fuzzer.fuzz)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
