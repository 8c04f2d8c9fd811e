"""`peltier` with a model that answers at once: everything of a request except its forward pass.

    .venv/bin/python benchmarks/instant.py serve --backbone minilm

Rows go through the same queue, thread and checks, but this program returns constant logits instead of calling
`peltier_adapters.batch.forward`. From SIGUSR1 to SIGUSR2 it samples its event loop, and writes the samples to the file
that the variable SAMPLES names.
"""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import torch
from common.sampling import Sampler
from peltier_adapters.batch.row import Row, RowOutput
from peltier_backbone.backbone import Backbone
from peltier_client.cli import main
from peltier_server.runner import isolation

_OUTPUT = RowOutput(torch.tensor([0.25, 0.75]))


def forward(backbone: Backbone, rows: Sequence[Row], **_: object) -> list[RowOutput]:
    """Two constant logits per row, for any arguments."""
    return [_OUTPUT] * len(rows)


if __name__ == "__main__":
    isolation.forward = forward
    sampler = Sampler()
    signal.signal(signal.SIGUSR1, lambda *_: sampler.start())
    signal.signal(signal.SIGUSR2, lambda *_: sampler.stop(Path(os.environ["SAMPLES"])))
    main()
