"""Whole conversions."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_adapters.conversion.command import convert
from peltier_adapters.conversion.convert import convert_checkpoint
from peltier_backbone.backbone import Backbone
from peltier_backbone.errors import BackboneError
from peltier_backbone.load import load_backbone
from peltier_backbone.text import tokenizer_files
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM

from tests.adapters_store.conversion.conftest import Pickled
from tests.support.full_disk import room_for
from tests.support.published_tokenizers import train_deberta


def _states(backbone: Backbone) -> torch.Tensor:
    rows = [backbone.tokenizer.encode(text) for text in ("a good film", "bad")]
    return backbone.bert(backbone.pack(rows))


@pytest.mark.usefixtures("reads_here")
@torch.inference_mode()
def test_a_pickle_becomes_the_same_backbone(pickled, bert, bert_directory, tmp_path):
    """To the last bit, with the fingerprint of the published safetensors and all that lies beside the weights."""
    source, output = pickled(bert_directory), tmp_path / "out"
    found = convert_checkpoint(source, output)
    served = load_backbone(str(output))
    assert found.fingerprint == served.fingerprint == bert.fingerprint
    assert torch.equal(_states(served), _states(bert))
    names = {path.name for path in source.iterdir()} - {"pytorch_model.bin"} | {"model.safetensors"}
    assert {path.name for path in output.iterdir()} == names
    assert {path.name for path in tmp_path.iterdir()} == {"out", "published"}
    (tmp_path / "new").touch()
    # As the umask says for every new file.
    assert (output / "model.safetensors").stat().st_mode == (tmp_path / "new").stat().st_mode


@pytest.mark.usefixtures("reads_here")
@torch.inference_mode()
def test_shards_in_half_precision_keep_their_values(pickled: Pickled, t5_directory: Path, tmp_path: Path) -> None:
    """The shards and the dtype stay; answers are those of transformers from the same values."""
    source, output = pickled(t5_directory, dtype=torch.float16, shards=3), tmp_path / "out"
    found = convert_checkpoint(source, output)
    shards = [torch.load(path) for path in sorted(source.glob("*.bin"))]
    for shard, path in zip(shards, sorted(output.glob("*.safetensors")), strict=True):
        written = load_file(path)
        assert written.keys() == shard.keys()
        assert all(one.dtype == torch.float16 and torch.equal(one, shard[name]) for name, one in written.items())
    assert list(found.dtypes) == ["float16"]
    served = load_backbone(str(output))
    assert served.fingerprint == found.fingerprint
    model = AutoModelForSeq2SeqLM.from_pretrained(output, dtype=torch.float32).eval()
    row = served.tokenizer.encode("a good film")
    expected = model.encoder(torch.tensor([row.ids])).last_hidden_state[0]
    torch.testing.assert_close(served.t5.encode(served.pack([row])), expected, atol=1e-4, rtol=1e-4)


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


@pytest.mark.usefixtures("reads_here")
def test_a_hub_cache_is_read_by_its_main_revision(pickled, bert, bert_directory, tmp_path):
    """OUT has files in place of the links."""
    cache = _hub_cache(pickled(bert_directory), tmp_path / "models--acme--encoder")
    assert convert_checkpoint(cache, tmp_path / "out").fingerprint == bert.fingerprint
    assert not any(path.is_symlink() for path in (tmp_path / "out").rglob("*"))


@pytest.mark.usefixtures("reads_here")
def test_a_tokenizer_is_written_as_servers_read_it(pickled, deberta_directory, tmp_path, monkeypatch):
    """DeBERTa-v3's repositories have only `spm.model`; a server reads OUT without the packages that this file needs."""
    source = pickled(deberta_directory)
    (source / "tokenizer.json").unlink()
    model = train_deberta(source / "spm.model", texts=["a good film", "bad"], vocab_size=30)
    convert_checkpoint(source, tmp_path / "out")
    monkeypatch.setattr(tokenizer_files, "find_spec", lambda name: None)
    served = load_backbone(str(tmp_path / "out")).tokenizer
    assert served.encode("a  good ﬁlm\u00a0").ids == (1, *model.encode("a good film"), 2)
    with pytest.raises(BackboneError, match=r"spm\.model alone needs transformers .* `peltier convert` writes"):
        convert_checkpoint(source, tmp_path / "other")


QUERY = "encoder.layer.1.attention.self.query.weight"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({QUERY: None}, f"tensor '{QUERY}' is missing"),
        ({QUERY: torch.ones(48, 47)}, rf"tensor '{QUERY}' has shape \(48, 47\), the configuration says \(48, 48\)"),
        ({"x.weight": torch.ones(2)}, "1 tensors have no place in a bert encoder, such as 'x.weight'"),
    ],
)
@pytest.mark.usefixtures("reads_here")
def test_weights_that_do_not_fit_are_refused(change, sentence, pickled, bert_directory, tmp_path):
    """By the name of the checkpoint that was given, and nothing is left."""
    source = pickled(bert_directory, change=change)
    with pytest.raises(BackboneError, match=f"^{source}.*{sentence}"):
        convert_checkpoint(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["published"]


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"model_type": "gpt2"}, "model_type is 'gpt2'; a backbone is one of bert"),
        ({"hidden_act": "swish"}, "hidden_act is 'swish'"),
    ],
)
def test_a_configuration_that_is_not_served_is_refused_by_its_field(
    config: dict[str, Any], sentence: str, pickled: Pickled, bert_directory: Path, tmp_path: Path
) -> None:
    """Before weights are read."""
    source = pickled(bert_directory, **config)
    with pytest.raises(BackboneError, match=f"^{source}/config.json: {sentence}"):
        convert_checkpoint(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["published"]


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")])
def test_an_output_that_exists_is_refused(make: Callable[[Path], None], bert_directory: Path, tmp_path: Path) -> None:
    """Also an empty directory and a link to nothing, which renaming would replace."""
    make(tmp_path / "out")
    with pytest.raises(BackboneError, match="out exists already; a conversion writes a new directory"):
        convert_checkpoint(bert_directory, tmp_path / "out")
    with pytest.raises(BackboneError, match="is no writable directory"):
        convert_checkpoint(bert_directory, tmp_path / "missing" / "out")


def test_a_disk_without_room_is_named_at_the_start(pickled: Pickled, bert_directory: Path, tmp_path: Path) -> None:
    """The file is sparse: it has more bytes than the disk."""
    source = pickled(bert_directory)
    os.truncate(source / "pytorch_model.bin", min(shutil.disk_usage(tmp_path).total + 1, 2**43))
    with pytest.raises(BackboneError, match=rf"^{tmp_path}/out has no room: [\d,]+ bytes are needed"):
        convert_checkpoint(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["published"]


@pytest.mark.usefixtures("reads_here")
def test_a_disk_that_becomes_full_leaves_nothing(pickled: Pickled, bert_directory: Path, tmp_path: Path) -> None:
    """The tensors do not fit any more."""
    source = pickled(bert_directory)
    with room_for(64 * 1024), pytest.raises(BackboneError, match=f"^{tmp_path}/out.*cannot be written: "):
        convert_checkpoint(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["published"]


def test_nothing_is_copied_through_a_link(pickled: Pickled, bert_directory: Path, tmp_path: Path) -> None:
    """Which would publish a file of this machine with the backbone."""
    source = pickled(bert_directory)
    (source / "vocab.txt").symlink_to("/etc/hosts")
    with pytest.raises(BackboneError, match=f"^{source}/vocab.txt is a link out of {source}; copy what it leads to"):
        convert_checkpoint(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["published"]


def _hub_cache(directory: Path, cache: Path) -> Path:
    """The files as blobs, and links to them in the snapshot of main."""
    snapshot, blobs = cache / "snapshots" / "0a1b2c", cache / "blobs"
    for folder in (snapshot, blobs, cache / "refs"):
        folder.mkdir(parents=True)
    (cache / "refs" / "main").write_text("0a1b2c")
    for number, path in enumerate(path for path in sorted(directory.iterdir()) if path.is_file()):
        shutil.copyfile(path, blobs / str(number))
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    return cache
