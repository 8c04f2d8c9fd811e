"""Fuzzes the reader of JSON bodies, with the model of every route that takes one.

    python tests/fuzz/fuzz_bodies.py CORPUS -dict=tests/fuzz/bodies.dict -max_total_time=600

The first byte chooses the model, the rest is the body; the last choice is an inference request of which the next two
bytes are the length, with the bytes of tensors after it. Any exception but those that the route answers, a refusal
without a documented status and reason, and a body that takes a minute or two gigabytes end it.
"""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import atheris
from pydantic import BaseModel

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["peltier_server", "peltier_client.protocol", "peltier_adapters.artifact"]):
    from peltier_client.errors import PeltierError

    from tests.fuzz.body_readers import READERS


def _answering(read: Callable[[bytes], Any]) -> Callable[[bytes], None]:
    """Reads a body as the route does. `JSONRequest.json` answers the exceptions that this suppresses with 400."""

    def answer(body: bytes) -> None:
        with suppress(json.JSONDecodeError, ValueError, RecursionError):
            try:
                found = read(body)
            except PeltierError as error:
                refusal = error
            else:
                if isinstance(found, BaseModel):
                    found.model_dump_json()  # what was read can be written
                return
            assert 400 <= refusal.status < 500, refusal
            assert str(refusal), "a refusal without a reason"
            json.dumps(str(refusal)).encode()

    # Each reader has branches of its own. Those of pydantic are not seen, so a body that one model accepts would reach
    # nothing that a body of another does not, and would be dropped.
    return atheris.instrument_func(answer)


ANSWERS = [_answering(read) for read in READERS]


def fuzz(data: bytes) -> None:
    """One body."""
    if data:
        ANSWERS[data[0] % len(ANSWERS)](data[1:])


if __name__ == "__main__":
    atheris.Setup([*sys.argv, "-timeout=60", "-rss_limit_mb=2048"], fuzz)
    atheris.Fuzz()
