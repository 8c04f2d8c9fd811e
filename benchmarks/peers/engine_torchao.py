"""torch.compile with torchao: 8-bit weights, and 8-bit activations with a range for each token."""

from compiled import serve_compiled
from engine import Arguments
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

serve_compiled(
    Arguments.read(), "inductor", lambda model: quantize_(model, Int8DynamicActivationInt8WeightConfig())
)  # fmt: skip
