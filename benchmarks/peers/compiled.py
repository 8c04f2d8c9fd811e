"""The common part of the engines that `torch.compile` makes. What it has compiled is kept in the model's folder."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch._inductor.config
from engine import Arguments, Array, Batch, Run, pad, run_all, serve
from transformers import BertModel

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.forced import held_level


def serve_compiled(arguments: Arguments, backend: str, prepare: Callable[[BertModel], None]) -> None:
    """Answers until standard input ends. `prepare` changes the model before it is compiled for batches of any size."""
    if "--convert" in sys.argv:
        return
    # Each level has a cache of its own, because the cache does not know the level.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(arguments.model / held_level())
    torch.set_num_threads(arguments.num_threads)
    torch._inductor.config.freezing = True

    def load() -> Run:
        model = BertModel.from_pretrained(arguments.checkpoint, add_pooling_layer=False).eval()
        prepare(model)
        compiled = torch.compile(model, backend=backend, dynamic=True)

        @torch.inference_mode()
        def run(batch: Batch) -> Array:
            inputs = {name: torch.from_numpy(array) for name, array in pad(batch).items()}
            states: Array = compiled(**inputs).last_hidden_state.float().numpy()
            return states

        # One row is compiled apart from several.
        run_all(run, ([[1] * 8] * 2, [[1] * 8]))
        return run

    serve(arguments, load, has_tenants=False)
