"""Engines that `torch.compile` makes, for batches of any size. What is compiled is kept in the model's folder.

torchao has 8-bit weights, and 8-bit activations with a range for each token. zentorch is AMD's backend, in float32 or
bfloat16.
"""

import os

import torch
import torch._inductor.config
from common.forced import held_level
from engine import Arguments, Array, Batch, Run, pad, run_all, serve
from transformers import BertModel

arguments = Arguments.read()


def load() -> Run:
    """Its own copy of the weights, compiled."""
    model = BertModel.from_pretrained(arguments.checkpoint, add_pooling_layer=False).eval()
    if arguments.library == "torchao":
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

        quantize_(model, Int8DynamicActivationInt8WeightConfig())
        compiled = torch.compile(model, backend="inductor", dynamic=True)
    else:
        import zentorch  # noqa: F401  (registers the backend)

        model.to(getattr(torch, arguments.precision))
        compiled = torch.compile(model, backend="zentorch", dynamic=True)

    @torch.inference_mode()
    def run(batch: Batch) -> Array:
        inputs = {name: torch.from_numpy(array) for name, array in pad(batch).items()}
        states: Array = compiled(**inputs).last_hidden_state.float().numpy()
        return states

    # One row is compiled apart from several.
    run_all(run, ([[1] * 8] * 2, [[1] * 8]))
    return run


# Each level has a cache of its own, because the cache does not know the level.
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(arguments.model / held_level())
torch.set_num_threads(arguments.num_threads)
torch._inductor.config.freezing = True
serve(arguments, load, has_tenants=False)
