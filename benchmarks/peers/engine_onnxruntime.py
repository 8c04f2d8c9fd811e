"""onnxruntime: a graph fused by its optimizer, in float32 or with 8-bit weights and dynamic 8-bit activations.

The build with OpenVINO's provider gets the plain graph, because OpenVINO does not know the fused operators.
"""

import tempfile
from pathlib import Path

from engine import Arguments, Array, Batch, Run, pad, serve
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions, get_available_providers

arguments = Arguments.read()
INPUTS = ["input_ids", "attention_mask", "token_type_ids"]
FILE = arguments.model / "model.onnx"
OUTPUTS = ["last_hidden_state"]
OPENVINO = "OpenVINOExecutionProvider"


def export(checkpoint: str, file: Path) -> None:
    """The model as ONNX. The optimizer recognises the attention only as `eager` computes it."""
    import torch
    from transformers import BertModel

    class States(torch.nn.Module):
        """The exporter calls the model by position, which transformers does not allow."""

        def __init__(self) -> None:
            super().__init__()
            self.bert = bert

        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            return self.bert(**dict(zip(INPUTS, inputs, strict=True))).last_hidden_state

    bert = BertModel.from_pretrained(checkpoint, attn_implementation="eager", add_pooling_layer=False).eval()
    axes = {name: {0: "rows", 1: "tokens"} for name in INPUTS + OUTPUTS}
    ids = torch.ones(2, 8, dtype=torch.long)
    torch.onnx.export(
        States(), (ids, ids, ids), file, dynamo=False, opset_version=17,
        input_names=INPUTS, output_names=OUTPUTS, dynamic_axes=axes,
    )  # fmt: skip


def convert() -> None:
    """Exports, fuses and, for int8, quantises."""
    if OPENVINO in get_available_providers():
        export(arguments.checkpoint, FILE)
        return
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers.optimizer import optimize_model

    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain.onnx"
        export(arguments.checkpoint, plain)
        optimize_model(str(plain), "bert", num_heads=12, hidden_size=384).save_model_to_file(str(FILE))
    if arguments.precision == "float32":
        return
    float_tensors = {"DefaultTensorType": 1}
    quantize_dynamic(FILE, FILE, weight_type=QuantType.QInt8, per_channel=True, extra_options=float_tensors)


def load() -> Run:
    """Its own copy of the weights."""
    options = SessionOptions()
    options.intra_op_num_threads = arguments.num_threads
    if OPENVINO in get_available_providers():
        options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
        settings = {"device_type": "CPU", "precision": "FP32", "num_of_threads": str(arguments.num_threads)}
        session = InferenceSession(FILE, options, providers=[(OPENVINO, settings)])
    else:
        session = InferenceSession(FILE, options, providers=["CPUExecutionProvider"])

    def run(batch: Batch) -> Array:
        return session.run(None, pad(batch))[0]

    return run


serve(arguments, load, convert)
