"""CTranslate2 in float32 or int8. It removes padding itself and takes lists of ids."""

import ctranslate2
import numpy as np
from engine import Arguments, Array, Batch, Run, serve

arguments = Arguments.read()


def convert() -> None:
    """Writes its own format."""
    converter = ctranslate2.converters.TransformersConverter(arguments.checkpoint)
    converter.convert(str(arguments.model), quantization=arguments.precision, force=True)


def load() -> Run:
    """Its own copy of the weights."""
    encoder = ctranslate2.Encoder(
        str(arguments.model), compute_type=arguments.precision, intra_threads=arguments.num_threads
    )

    def run(batch: Batch) -> Array:
        return np.array(encoder.forward_batch(batch).last_hidden_state)

    return run


serve(arguments, load, convert)
