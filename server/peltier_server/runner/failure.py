"""What a failed computation means for its caller, and how to free memory before the next one."""

import gc

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.machine.heap import give_back_freed_memory
from peltier_client.errors import InferenceFailed, PeltierError, Unavailable

from peltier_server import retry_hints

# Messages of RuntimeErrors that torch's allocators and libraries raise without memory.
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")
# The whole message of oneDNN when it has no memory for the code that it generates for each new size of a batch. For an
# unsupported size the message is longer: "could not create a primitive descriptor for …".
_NO_MEMORY_FOR_CODE = "could not create a primitive"


def blame(failure: BaseException) -> PeltierError:
    """The error for the caller of a row that failed alone.

    Without enough memory it is `Unavailable`: no task allows an input that is too large for every server, so this
    server lacks memory at the moment. Any other failure is due to the input or its adapter.
    """
    if _is_out_of_memory(failure):
        return Unavailable(
            "the server has too little memory for this input at the moment", retry_after=retry_hints.SOON
        )
    return InferenceFailed(f"the model failed on this input with {type(failure).__name__}")


def free_memory(backbone: Backbone) -> None:
    """Frees unused memory, before a smaller batch is tried."""
    gc.collect()
    if backbone.device.type == "cuda":
        torch.cuda.empty_cache()
    else:
        give_back_freed_memory()


def _is_out_of_memory(failure: BaseException) -> bool:
    if isinstance(failure, torch.OutOfMemoryError | MemoryError):
        return True
    if not isinstance(failure, RuntimeError):
        return False
    message = str(failure).lower()
    return message == _NO_MEMORY_FOR_CODE or any(words in message for words in _OUT_OF_MEMORY)
