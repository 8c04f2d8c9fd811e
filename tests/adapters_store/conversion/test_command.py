"""`peltier convert`."""

import json
from pathlib import Path

import pytest
from peltier_adapters.conversion.command import convert
from peltier_backbone.backbone import Backbone

from tests.adapters_store.conversion.conftest import Pickled


@pytest.mark.usefixtures("reads_here")
def test_the_document_has_the_fingerprint(
    pickled: Pickled, bert: Backbone, bert_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the family, the dtypes, and the bytes of all files."""
    source, output = pickled(bert_directory), tmp_path / "out"
    convert(source, output, json_output=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["checkpoint"], found["output"]) == (str(source), str(output))
    assert (found["family"], found["fingerprint"]) == ("bert", bert.fingerprint)
    assert found["num_bytes"] == sum(path.stat().st_size for path in output.iterdir())
    assert list(found["dtypes"]) == ["float32"]
