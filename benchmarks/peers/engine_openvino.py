"""OpenVINO: float32, bfloat16, or 8-bit weights and activations by nncf, calibrated with sentences."""

import openvino
from engine import Arguments, Array, Batch, Run, pad, serve

arguments = Arguments.read()
FILE = arguments.model / "model.xml"
# Beside int8 maps it computes what is left in its own choice for this processor, which is bfloat16 where it can.
HINTS = {"float32": {"INFERENCE_PRECISION_HINT": "f32"}, "bfloat16": {"INFERENCE_PRECISION_HINT": "bf16"}, "int8": {}}


def convert() -> None:
    """Traces the model and, for int8, quantises it."""
    import nncf
    import torch
    from transformers import BertModel

    model = BertModel.from_pretrained(arguments.checkpoint, add_pooling_layer=False).eval()
    example = {name: torch.from_numpy(array) for name, array in pad([[1] * 8] * 2).items()}
    converted = openvino.convert_model(model, example_input=example)
    if arguments.precision == "int8":
        rows = nncf.Dataset([pad([row]) for row in arguments.read_calibration()])
        converted = nncf.quantize(converted, rows, model_type=nncf.ModelType.TRANSFORMER, subset_size=rows.get_length())
    openvino.save_model(converted, FILE, compress_to_fp16=False)


def load() -> Run:
    """A compiled model of its own."""
    settings = {"INFERENCE_NUM_THREADS": arguments.num_threads, "NUM_STREAMS": 1, **HINTS[arguments.precision]}
    request = openvino.Core().compile_model(FILE, "CPU", settings).create_infer_request()

    def run(batch: Batch) -> Array:
        return request.infer(pad(batch))[0]

    return run


serve(arguments, load, convert)
