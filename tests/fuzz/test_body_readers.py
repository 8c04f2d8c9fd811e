"""The fuzzer of bodies has the model of every route, and its corpus a body of each."""

import zipfile
from pathlib import Path

from fastapi import params
from peltier_server.app import create_app
from peltier_server.extensions.settings import load_settings
from peltier_server.http.scoped_route import ScopedRoute

from tests.fuzz.body_readers import MODELS, READERS

_CORPUS = Path(__file__).parent / "corpus" / "bodies.zip"


def test_every_model_of_a_body_is_fuzzed(tmp_path: Path) -> None:
    """Names that occur twice are treated as by the route. One reader has no model."""
    app = create_app(load_settings({"backbone": "none", "store": tmp_path / "store"}))
    routes = [route for route in app.routes if isinstance(route, ScopedRoute)]
    fields = [(route.body_field, "predict" not in route.scopes) for route in routes if route.body_field is not None]
    served = {
        (field.field_info.annotation, refuses_twice)
        for field, refuses_twice in fields
        if not isinstance(field.field_info, params.Form)
    }
    assert {*MODELS} == {*served, (None, False)}


def test_the_corpus_has_a_body_that_each_reader_accepts() -> None:
    """An input names its reader by number, so this fails too if a reader is added before others."""
    with zipfile.ZipFile(_CORPUS) as corpus:
        inputs = [corpus.read(name) for name in corpus.namelist()]
    accepted = {data[0] % len(READERS) for data in inputs if data and _is_read(data)}
    assert accepted == {*range(len(READERS))}


def _is_read(data: bytes) -> bool:
    try:
        READERS[data[0] % len(READERS)](data[1:])
    except Exception:  # of the parser, or a refusal
        return False
    return True
