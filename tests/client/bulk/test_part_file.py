"""The file in which an output grows."""

import json
from pathlib import Path
from typing import Any

import pytest
from peltier_client.bulk.part_file import PartFile, Written
from peltier_client.errors import InvalidInput

LINE: dict[str, Any] = {"line": 3, "row": {"text": "a"}, "prediction": {}, "adapter": "sst2", "version": 1}


@pytest.mark.parametrize("bad", [{"line": "3"}, {"line": None}, {"row": []}, {"adapter": 1}])
def test_a_line_that_is_none_is_refused_and_not_counted(tmp_path: Path, bad: dict[str, Any]) -> None:
    """The refusal names the line of the part file, at once and not when the run goes on."""
    with pytest.raises(TypeError):
        (written := Written()).add(LINE | bad)
    assert written == Written()
    part = tmp_path / "out.jsonl.part"
    part.write_text(f"{json.dumps(LINE)}\n{json.dumps(LINE | bad)}\n")
    with pytest.raises(InvalidInput, match=r"part:2 is not a line of predictions"):
        PartFile(tmp_path / "out.jsonl", resume=True)


def test_every_text_of_json_can_be_written(tmp_path: Path) -> None:
    """Half of a surrogate pair too, which JSON has and UTF-8 has not."""
    output = tmp_path / "out.jsonl"
    with PartFile(output, resume=False) as part:
        part.write([LINE | {"row": {"text": "hi \ud83d"}}])
        part.finish()
    assert json.loads(output.read_bytes())["row"] == {"text": "hi \ud83d"}


def test_an_output_that_cannot_get_its_name_is_said(tmp_path: Path) -> None:
    """The lines stay in the part file."""
    output = tmp_path / "out.jsonl"
    with PartFile(output, resume=False) as part:
        part.write([LINE])
        output.mkdir()
        with pytest.raises(InvalidInput, match=r"out\.jsonl cannot be written: "):
            part.finish()
    assert json.loads(part.path.read_bytes()) == LINE
