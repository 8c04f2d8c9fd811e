"""The common part of the processes of `texts.py`: the inputs, and a case for each number of rows in a batch.

It uses only the standard library and numpy, like `engine.py`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from answering import Case, answer
from engine import Arguments, Batch

# Takes rows of token ids, the number of rows in a batch and the most tokens of a text. Returns texts as token ids,
# without a start token and with an end token.
Write = Callable[[Batch, int, int], Batch]


@dataclass(frozen=True)
class TextWork:
    """Token ids of the inputs, the numbers of rows in a batch, and the most tokens of a text."""

    rows: Batch
    sizes: list[int]
    limit: int


def serve(arguments: Arguments, write: Write) -> None:
    """Answers until standard input ends. The case `8 first` writes only the first token of each text, with 8 rows. The
    case `texts` saves what each number of rows has written."""
    work = TextWork(**json.loads((arguments.folder / "work.json").read_text()))
    texts: dict[int, Batch] = {}

    def case(num_rows: int) -> None:
        texts[num_rows] = write(work.rows, num_rows, work.limit)

    cases: dict[str, Case] = {str(size): lambda size=size: case(size) for size in work.sizes}
    first: dict[str, Case] = {
        f"{size} first": lambda size=size: write(work.rows, size, 1) for size in work.sizes
    }  # fmt: skip
    answer({**cases, **first, "texts": lambda: arguments.texts.write_text(json.dumps(texts))})
