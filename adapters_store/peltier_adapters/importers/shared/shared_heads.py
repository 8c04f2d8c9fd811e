"""PEFT's adapters of keys and values that several heads share (EuroBERT): Peltier's adapters change those of each head,
so each head gets a copy."""

from peltier_backbone.checkpoint.config import BackboneConfig, EuroBertConfig
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint

_MODULES = (".self_attn.k_proj", ".self_attn.v_proj")
# Tensors that have a row for each output of a module.
_ROWS = r"(.*)\.(lora_B\.weight|lora_magnitude_vector(\.weight)?|ia3_l|vera_lambda_b)"


def num_sharing(module: str, config: BackboneConfig) -> int:
    """How many heads share each key or value that `module` computes; 1 if every head has its own."""
    if not isinstance(config, EuroBertConfig) or not module.endswith(_MODULES):
        return 1
    return config.num_heads // config.num_key_heads


def repeat_heads(module: str, rows: Tensor, config: BackboneConfig) -> Tensor:
    """From `rows` for the outputs of `module`, a copy for each head that shares them: [outputs, …] -> [hidden, …]."""
    num = num_sharing(module, config)
    if num == 1:
        return rows
    heads = rows.reshape(config.num_heads // num, -1, *rows.shape[1:])
    return heads.repeat_interleave(num, 0).flatten(0, 1)


def repeat_shared(checkpoint: Checkpoint, config: BackboneConfig) -> None:
    """Repeats the rows of all tensors of shared keys and values in `checkpoint`. Raises an `AdapterError` for another
    number of rows than that of the backbone's map."""
    for match in checkpoint.matches(_ROWS):
        num = num_sharing(match[1], config)
        if num == 1:
            continue
        rows, wanted = checkpoint.take(match[0]), config.hidden_size // num
        if len(rows) == wanted:
            rows = repeat_heads(match[1], rows, config)
        elif len(rows) > 1:  # IA3 has one row of factors of inputs
            raise AdapterError(f"{checkpoint.where}: tensor {match[0]!r} has {len(rows)} rows; it must have {wanted}")
        checkpoint.put_back({match[0]: rows})
