"""zentorch, AMD's backend of torch.compile, in float32 or bfloat16."""

import torch
import zentorch  # noqa: F401  (registers the backend)
from compiled import serve_compiled
from engine import Arguments

arguments = Arguments.read()
serve_compiled(arguments, "zentorch", lambda model: model.to(getattr(torch, arguments.precision)))
