"""A small text of made-up English, and a maker of short runs on it."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from peltier_training.pretraining.run import Optimization, Pretraining, PretrainingBudget, T5Shape

MakePretraining = Callable[..., Pretraining]

VOCAB_SIZE = 700
_WORDS = """
the a one every small old quiet bright careful river teacher engine garden letter window farmer market
winter
morning village carried opened watched followed remembered painted answered slowly gladly twice again before after
near under beyond with without because although when and but 1815 42 Vienna Mary
""".split()  # noqa: SIM905 - words read best as words
_STEMS = ("walk", "talk", "gather", "open", "paint", "learn", "water", "wonder", "follow", "answer", "number", "letter")
_ENDINGS = ("", "s", "ed", "ing", "er", "ers", "able")


def _sentence(draw: random.Random) -> str:
    words = [*draw.choices(_WORDS, k=7), *(draw.choice(_STEMS) + draw.choice(_ENDINGS) for _ in range(4))]
    draw.shuffle(words)
    return " ".join(words).capitalize() + draw.choice(".?!;")


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of 401 documents of two paragraphs, about 17 thousand words."""
    draw = random.Random(1)
    paragraphs = [" ".join(_sentence(draw) for _ in range(2)) for _ in range(802)]
    documents = ["\n".join(paragraphs[i : i + 2]) for i in range(0, len(paragraphs), 2)]
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n\n".join(documents) + "\n")
    return path


def create_pretraining(text: Path, folder: Path, **changes: Any) -> Pretraining:
    """A run of a tiny model for a few steps, which writes into `folder`; `changes` are its fields."""
    own: dict[str, Any] = {
        "texts": (text,), "output": folder / "tiny", "directory": folder / "run", "device": "cpu",
        "budget": PretrainingBudget(steps=6), "optimization": Optimization(batch_size=4, input_length=32),
        "shape": T5Shape(VOCAB_SIZE, d_model=16, layers=1, heads=2, d_ff=32, d_kv=8),
    }  # fmt: skip
    return Pretraining(**(own | changes))


@pytest.fixture
def make_pretraining(text: Path, tmp_path: Path) -> MakePretraining:
    """`make_pretraining(…) -> Pretraining`; keywords are fields of it."""
    return partial(create_pretraining, text, tmp_path)
