"""`peltier convert`."""

import json

import pytest
from peltier_adapters.conversion.command import convert


@pytest.mark.usefixtures("reads_here")
def test_the_document_has_the_fingerprint(pickled, bert, bert_directory, tmp_path, capsys):
    """With the family, the dtypes, and the bytes of all files."""
    source, output = pickled(bert_directory), tmp_path / "out"
    convert(source, output, json_output=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["checkpoint"], found["output"]) == (str(source), str(output))
    assert (found["family"], found["fingerprint"]) == ("bert", bert.fingerprint)
    assert found["num_bytes"] == sum(path.stat().st_size for path in output.iterdir())
    assert list(found["dtypes"]) == ["float32"]
