import copy
import pickle

import pytest
from peltier_client import errors
from peltier_client.errors import PeltierError, error_classes

LEAVES = list(error_classes())
WIRE = [cls for cls in LEAVES if cls.status]


def test_every_code_belongs_to_one_class() -> None:
    """Two classes never share a code, so the code alone names the exception."""
    assert sorted(errors.BY_CODE) == sorted({cls.code for cls in LEAVES})
    assert len(errors.BY_CODE) == len(LEAVES)


def test_the_drawing_names_every_class() -> None:
    """The tree at the top of the module lists each class with its code."""
    assert errors.__doc__
    for cls in LEAVES:
        assert f" {cls.__name__} " in errors.__doc__, cls
    for cls in WIRE:
        assert f"{cls.status} {cls.code}" in errors.__doc__


@pytest.mark.parametrize("cls", [PeltierError, *LEAVES])
def test_errors_cross_processes(cls: type[PeltierError]) -> None:
    """Pickling and copying keep the sentence, the details and the seconds to wait."""
    error = cls("why", ["detail"], retry_after=2.5)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - our own bytes
        assert type(twin) is cls
        assert (str(twin), twin.details, twin.retry_after) == ("why", ["detail"], 2.5)
