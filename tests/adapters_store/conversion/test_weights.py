"""What the reading process does with a file of weights; it is called in this process, which has no limits."""

import os
import pickle
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_adapters.conversion import weights
from peltier_adapters.errors import AdapterError
from safetensors.torch import load_file


@pytest.fixture
def read(tmp_path: Path) -> "Read":
    """Reads the file that the test wrote."""
    return Read(tmp_path)


class Read:
    """One file, `weights.bin`, and what becomes of it."""

    def __init__(self, folder: Path) -> None:
        self.source, self.target = folder / "weights.bin", folder / "new.safetensors"

    def facts(self) -> dict[str, Any]:
        """What is found out about it."""
        (facts,) = weights.convert_files({"files": [[str(self.source), str(self.target)]]})
        return facts

    def refusal(self) -> str:
        """Why the file is refused; nothing is written then."""
        with pytest.raises(AdapterError) as refused:
            self.facts()
        assert not self.target.exists()
        return str(refused.value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("legacy", [False, True])
def test_values_and_dtypes_are_kept(dtype: torch.dtype, legacy: bool, read: Read) -> None:
    """In both formats of torch, also of transposed tensors and of two names for one."""
    weight = torch.randn(3, 5).to(dtype)
    state = {"a": weight, "b": weight, "c": weight.T, "d": torch.nn.Parameter(weight), "position_ids": torch.arange(4)}
    torch.save(state, read.source, _use_new_zipfile_serialization=not legacy)
    facts = read.facts()
    written = load_file(read.target)
    assert written.keys() == state.keys()
    for name, tensor in state.items():
        assert written[name].dtype == tensor.dtype
        assert torch.equal(written[name], tensor.detach())
    assert facts["dtypes"] == {str(dtype).removeprefix("torch."): 60}


class _Hostile:
    """What it names would be called when the pickle is read."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("hostile",)


@pytest.mark.parametrize("wrap", [lambda one: {"weight": one}, lambda one: [one], lambda one: one])
def test_a_hostile_pickle_is_refused_by_what_it_asks_for(wrap, read, tmp_path, monkeypatch):
    """And runs nothing."""
    monkeypatch.chdir(tmp_path)
    assert callable(wrap)
    torch.save(wrap(_Hostile()), read.source)
    reason = "it asks for posix.mkdir, which no tensor needs"
    assert read.refusal().endswith(f"weights.bin is not a torch file that contains only tensors: {reason}")
    read.source.write_bytes(pickle.dumps(wrap(_Hostile())))
    assert "is not a torch file that contains only tensors" in read.refusal()
    assert not Path("hostile").exists()


@pytest.mark.parametrize("content", [b"", b"hello world", b"PK\x03\x04", b"\x80\x02}q\x00(X", b"\x80\x04."])
def test_a_file_that_is_no_checkpoint_is_refused(content: bytes, read: Read) -> None:
    """In one sentence."""
    read.source.write_bytes(content)
    assert "is not a torch file that contains only tensors: " in read.refusal()


def test_a_pointer_of_git_lfs_is_named(read: Read) -> None:
    """What a clone without LFS has in place of weights."""
    read.source.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n")
    assert read.refusal().endswith("is a pointer of Git LFS, not the file itself; `git lfs pull` fetches it")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_weights_are_finite(value: float, dtype: torch.dtype, read: Read) -> None:
    """One wrong value is found, and counted."""
    weight = torch.ones(4, 4, dtype=dtype)
    weight[2, 1] = value
    torch.save({"b": weight}, read.source)
    assert read.refusal().endswith("tensor 'b' has 1 values that are NaN or infinite")


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.complex64, torch.float8_e4m3fn])
def test_quantised_weights_are_refused(dtype: torch.dtype, read: Read) -> None:
    """Their scales are elsewhere, so their values are not those of the model."""
    torch.save({"a.weight": torch.ones(2).to(dtype)}, read.source)
    assert "weights are float16, bfloat16, float32 or float64" in read.refusal()


def test_a_small_file_has_no_huge_tensors(read: Read) -> None:
    """Neither by strides of 0 nor by compression, which torch does not use."""
    torch.save({"a": torch.ones(1).expand(1 << 20, 1 << 20)}, read.source)
    assert "more than 4 times the" in read.refusal()
    torch.save({"a": torch.zeros(100_000)}, read.source)
    with zipfile.ZipFile(read.source) as archive:
        records = {one: archive.read(one) for one in archive.namelist()}
    with zipfile.ZipFile(read.source, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in records.items():
            archive.writestr(name, data)
    assert "is compressed, which torch.save never does" in read.refusal()


class _Bomb:
    """A pickle of a few bytes, whose value has 64 GiB."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return bytearray, (2**36,)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space")
def test_the_process_that_reads_a_pickle_has_little_memory(tmp_path: Path) -> None:
    """Of a conversion and of an import; `weights_only` lets such a pickle be read."""
    torch.save({"weight": _Bomb()}, tmp_path / "weights.bin")
    with pytest.raises(AdapterError, match=r"weights\.bin is not .* it asks for more memory than its bytes may have"):
        weights.read_weights(tmp_path / "weights.bin")
