"""The files beside the weights."""

from pathlib import Path

import pytest
from peltier_adapters.conversion.companions import copy_companions
from peltier_backbone.errors import BackboneError

COPIED = (
    *("config.json", "generation_config.json", "tokenizer.json", "vocab.txt", "merges.txt", "spiece.model"),
    *("chat_template.jinja", "LICENSE", "README.md", "1_Pooling/config.json"),
)
LEFT = ("model.safetensors.index.json", "pytorch_model.bin", "modeling.py", "tf_model.h5", ".gitattributes", "a/b.json")


def test_what_readers_need_is_copied_and_no_weights_or_code(tmp_path: Path) -> None:
    """Through links, as files."""
    old, new, blob = tmp_path / "old", tmp_path / "new", tmp_path / "blob"
    new.mkdir()
    blob.write_text("content")
    for name in (*COPIED, *LEFT):
        (old / name).parent.mkdir(exist_ok=True, parents=True)
        (old / name).symlink_to(blob)
    assert copy_companions(old, new) == len(COPIED)
    copies = {path.relative_to(new).as_posix(): path for path in new.rglob("*") if path.is_file()}
    assert copies.keys() == set(COPIED)
    assert not any(path.is_symlink() for path in copies.values())


def test_a_link_to_nothing_is_refused(tmp_path: Path) -> None:
    """As in a hub cache whose download was interrupted."""
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    (tmp_path / "old/tokenizer.json").symlink_to("missing")
    with pytest.raises(BackboneError, match=r"tokenizer\.json is a link to a file that is not there"):
        copy_companions(tmp_path / "old", tmp_path / "new")
