"""Reads directories that Hugging Face PEFT saves (docs/methods.md#peft): LoRA, prefix, prompt and LayerNorm tuning."""

from collections.abc import Callable, Mapping
from pathlib import Path

from peltier_backbone.backbone import Backbone

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.peft.lora import read_lora
from peltier_adapters.importers.shared.checkpoint import Checkpoint, find_file, read_checkpoint
from peltier_adapters.importers.shared.config_file import ConfigFile, read_config
from peltier_adapters.importers.shared.head import take_head, type_of_class
from peltier_adapters.importers.shared.imported_adapter import ImportedAdapter
from peltier_adapters.importers.shared.imported_part import ImportedPart
from peltier_adapters.importers.shared.module_sites import base_names, find_sites
from peltier_adapters.importers.shared.prefix import create_prefix, prefix_width, unfold_prefix
from peltier_adapters.importers.shared.prompt import create_prompt
from peltier_adapters.importers.shared.replaced import take_biases, take_norms
from peltier_adapters.spec.tasks import TaskType

_FILES = ("adapter_model.safetensors", "adapter_model.bin")
# Task types by PEFT's; None depends on the head.
_TASKS: Mapping[str | None, TaskType | None] = {
    None: None,
    "SEQ_CLS": None,
    "SEQ_2_SEQ_LM": None,
    "TOKEN_CLS": "token-classification",
    "QUESTION_ANS": "span",
    "FEATURE_EXTRACTION": "embedding",
}
_NO_EFFECT = (
    "base_model_name_or_path", "revision", "inference_mode", "peft_version", "target_modules",
    "exclude_modules", "modules_to_save", "layers_to_transform", "layers_pattern", "init_weights",
)  # fmt: skip
_POOLER = r"pooler\.dense\..*"
_MIN_MAX_LENGTH = 3  # tokens, as in `TaskSpec`


def read_peft(path: Path, backbone: Backbone) -> ImportedAdapter:
    """The adapter in directory `path`; raises `AdapterError` for what is not supported."""
    config = read_config(find_file(path, ("adapter_config.json",)))
    checkpoint = read_checkpoint(find_file(path, _FILES))
    kind = config.get("peft_type")
    if not isinstance(kind, str) or kind not in _READERS:
        raise AdapterError(f"{config.where}: peft_type is {kind!r}; supported are {', '.join(_READERS)}")
    config.only("task_type", *_TASKS)
    config.ignore("auto_mapping", *_NO_EFFECT)
    pieces, checkpoint = _READERS[kind](config, checkpoint, backbone)
    config.finish()
    places = find_sites(backbone.config)
    task_type = None if backbone.config.generates else _task_type(config)
    head = None if backbone.config.generates else take_head(checkpoint, backbone.config, task_type)
    if head is not None and task_type == "embedding":
        task_type = None  # a model of features with a head of its own
    pooled = task_type == "embedding" and bool(checkpoint.matches(_POOLER))
    if pooled:
        checkpoint.skip(_POOLER)  # an embedding does not read it
    pieces += take_biases(checkpoint, places, backbone) + take_norms(checkpoint, places, backbone)
    checkpoint.finish()
    if not pieces:
        raise AdapterError(f"{checkpoint.where} has no adapter for this backbone, only a head")
    origin = {"library": "peft", "peft_type": kind, "version": str(config.get("peft_version", "unknown"))}
    return ImportedAdapter(f"peft-{kind.lower()}", pieces, head, task_type=task_type, origin=origin, pooled=pooled)


def _task_type(config: ConfigFile) -> TaskType | None:
    """What the configuration says; without a type PEFT saves the base model's class."""
    named, mapping = config.get("task_type"), config.get("auto_mapping")
    found = type_of_class(mapping.get("base_model_class")) if isinstance(mapping, dict) else None
    return _TASKS[named] or found


Read = tuple[list[ImportedPart], Checkpoint]


def _norms(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone) -> Read:
    """No part, because `read_peft` takes the norms of every type."""
    return [], checkpoint.renamed(lambda name: base_names(name.replace(".ln_tuning_layers.", ".")))


def _prompt(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone) -> Read:
    """On a T5 the table has a second half for the decoder, which PEFT does not use (docs/methods.md#peft)."""
    length = config.count("num_virtual_tokens")
    config.ignore("num_transformer_submodules", "num_attention_heads", "num_layers", "token_dim")
    config.ignore("prompt_tuning_init", "prompt_tuning_init_text", "tokenizer_name_or_path", "tokenizer_kwargs")
    table = checkpoint.take("prompt_embeddings", None, backbone.config.hidden_size)
    if len(table) not in (length, 2 * length):
        raise AdapterError(f"{checkpoint.where}: the prompt has {len(table)} rows; {config.where} says {length}")
    return [create_prompt(table[:length], backbone.config)], checkpoint.renamed(base_names)


def _prefix(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone) -> Read:
    """PEFT has evaluated an MLP (`prefix_projection`) when it saved the prefix."""
    if backbone.config.generates:
        raise AdapterError(
            f"{config.where}: PEFT's prefix on a T5 acts only on the decoder's self-attention, with its own order of "
            "layers; only prefixes of every attention are supported"
        )
    length = config.count("num_virtual_tokens")
    config.only("num_transformer_submodules", 1, None)
    config.ignore("num_attention_heads", "num_layers", "token_dim", "encoder_hidden_size", "prefix_projection")
    if backbone.config.max_tokens - length < _MIN_MAX_LENGTH:
        raise AdapterError(
            f"{config.where}: num_virtual_tokens is {length}; PEFT counts them among the {backbone.config.max_tokens} "
            f"positions of this backbone, which leaves fewer than {_MIN_MAX_LENGTH} for the text"
        )
    flat = checkpoint.take("prompt_embeddings", length, prefix_width(backbone.config))
    prefixes = unfold_prefix(flat, backbone.config)
    piece = create_prefix(prefixes, backbone.config, shifts_positions=True)
    return [piece], checkpoint.renamed(base_names)


_READERS: dict[str, Callable[[ConfigFile, Checkpoint, Backbone], Read]] = {
    "LORA": read_lora,
    "PREFIX_TUNING": _prefix,
    "PROMPT_TUNING": _prompt,
    "LN_TUNING": _norms,
}
