"""CTranslate2's T5 in float32 or int8, greedy. It sorts the rows of its batches by length itself."""

import json
import sys

import ctranslate2
from engine import Arguments, Batch
from text_engine import serve

arguments = Arguments.read()
END = "</s>"


def convert() -> None:
    """Writes its own format."""
    converter = ctranslate2.converters.TransformersConverter(arguments.checkpoint)
    converter.convert(str(arguments.model), quantization=arguments.precision, force=True)


class Translator:
    """Takes and returns ids; CTranslate2 itself takes tokens as text."""

    def __init__(self) -> None:
        self._tokens = json.loads((arguments.model / "shared_vocabulary.json").read_text())
        self._ids = {token: number for number, token in enumerate(self._tokens)}
        self._model = ctranslate2.Translator(
            str(arguments.model), compute_type=arguments.precision, intra_threads=arguments.num_threads
        )

    def write(self, rows: Batch, num_rows: int, limit: int) -> Batch:
        """Static batches, from which texts that have ended are removed."""
        written = self._model.translate_batch(
            [[self._tokens[number] for number in row] for row in rows],
            max_batch_size=num_rows, beam_size=1, max_decoding_length=limit, return_end_token=True,
        )  # fmt: skip
        return [[self._ids[token] for token in text.hypotheses[0]] for text in written]


if "--convert" in sys.argv:
    convert()
else:
    serve(arguments, Translator().write)
