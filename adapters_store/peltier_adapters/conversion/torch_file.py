"""Tensors of a torch file, which is a pickle. Only the process of `reader.py` reads one."""

import re
import warnings
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor

from peltier_adapters.errors import AdapterError


def read_torch(path: Path) -> dict[str, Tensor]:
    """Its tensors by name, in their own dtypes. Raises an AdapterError for a file that contains anything else."""
    try:
        with warnings.catch_warnings(action="ignore"):  # about pickles, which it then refuses
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a broken pickle may raise anything: IndexError, struct.error, …
        raise AdapterError(f"{path} is not a torch file that contains only tensors: {_refusal(error)}") from None
    if isinstance(state, dict) and isinstance(state.get("model_state_dict"), dict):
        state = state["model_state_dict"]
    if not isinstance(state, dict) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise AdapterError(f"{path} holds {type(state).__name__}; it must be a dictionary of tensors")
    sparse = next((name for name, tensor in state.items() if tensor.layout != torch.strided or tensor.is_meta), None)
    if sparse is not None:
        raise AdapterError(f"{path}: tensor {sparse!r} is sparse or has no values; weights are dense tensors")
    return {str(name): tensor for name, tensor in state.items()}


def _refusal(error: Exception) -> str:
    """Why torch did not read a pickle, without its advice on how to run what the file holds."""
    if found := re.search(r"GLOBAL (\S+)", str(error)):
        return f"it asks for {found[1]}, which no tensor needs"
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return "it asks for more memory than its bytes may have"
    if isinstance(error, UnpicklingError):
        return "it is a pickle of other things"
    return reason_of(error) if isinstance(error, RuntimeError | OSError) else "torch.save did not write it"


def reason_of(error: Exception) -> str:
    """The first line of an error's message."""
    return str(error).splitlines()[0] if str(error).strip() else type(error).__name__
