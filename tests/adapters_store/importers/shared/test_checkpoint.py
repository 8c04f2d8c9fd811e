import pickle
from pathlib import Path

import pytest
import torch
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint, find_file, read_checkpoint
from safetensors.torch import save_file


class _Harmful:
    """What a hostile pickle would call when it is read."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path("touched"),)


def test_a_torch_file_may_hold_tensors_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickle that would run code is refused, and no code runs."""
    monkeypatch.chdir(tmp_path)
    torch.save({"weight": _Harmful()}, tmp_path / "adapter_model.bin")
    with pytest.raises(AdapterError, match="is not a torch file that contains only tensors"):
        read_checkpoint(tmp_path / "adapter_model.bin")
    (tmp_path / "plain.bin").write_bytes(pickle.dumps(_Harmful()))
    with pytest.raises(AdapterError, match="is not a torch file that contains only tensors"):
        read_checkpoint(tmp_path / "plain.bin")
    assert not Path("touched").exists()


@pytest.mark.parametrize("name", ["half.bin", "half.safetensors"])
def test_half_written_files_are_refused(name: str, tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(64)}, tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(AdapterError, match="is not a"):
        read_checkpoint(tmp_path / name)


@pytest.mark.parametrize("content", [b"", b"abc", b"\x80\x02.", b"\x80\x02K", b"\x80\x02}q\x00(X", b"PK\x03\x04"])
@pytest.mark.parametrize("name", ["broken.bin", "broken.safetensors"])
def test_broken_files_are_refused(name: str, content: bytes, tmp_path: Path) -> None:
    """A file that is not a checkpoint is refused in one sentence, for any error of its reader."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(AdapterError, match="is not a"):
        read_checkpoint(tmp_path / name)


@pytest.mark.parametrize("tensor", [torch.eye(3).to_sparse(), torch.ones(3, device="meta")], ids=["sparse", "meta"])
def test_tensors_without_all_their_values_are_refused(tensor: torch.Tensor, tmp_path: Path) -> None:
    """Sparse tensors, and tensors on the meta device."""
    torch.save({"weight": tensor}, tmp_path / "a.bin")
    with pytest.raises(AdapterError, match="tensor 'weight' is sparse or has no values"):
        read_checkpoint(tmp_path / "a.bin")


def test_a_trainers_checkpoint_is_opened_at_its_weights(tmp_path: Path) -> None:
    """Tensors under `model_state_dict` are read; other contents are refused."""
    torch.save({"model_state_dict": {"weight": torch.ones(2)}}, tmp_path / "a.bin")
    assert list(read_checkpoint(tmp_path / "a.bin")) == ["weight"]
    torch.save([torch.ones(2)], tmp_path / "b.bin")
    with pytest.raises(AdapterError, match="holds list; it must be a dictionary of tensors"):
        read_checkpoint(tmp_path / "b.bin")


def test_a_missing_path_is_said(tmp_path: Path) -> None:
    """The errors for a missing directory and for a directory without the files differ."""
    with pytest.raises(AdapterError, match="does not exist"):
        find_file(tmp_path / "no", ("a.bin",))
    with pytest.raises(AdapterError, match=r"has none of the files a\.bin, b\.bin"):
        find_file(tmp_path, ("a.bin", "b.bin"))


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (("a.0",), "small has no LoRA of 'a.1', which targets promises"),
        ((), "small has no LoRA of 'a.0', 'a.1', which targets promises"),
        (("a.0", "a.1", "b", "c", "d", "e"), "small has LoRA of 'b', 'c', 'd' and 1 more, which targets does not prom"),
    ],
)
def test_what_is_promised_and_what_is_there_are_the_same(found: tuple[str, ...], sentence: str) -> None:
    """A name that the file lacks is refused, and so is one that no setting promises."""
    checkpoint = Checkpoint({}, Path("small"))
    checkpoint.check_promise("LoRA of", ("a.0", "a.1"), ("a.1", "a.0"), "targets")
    with pytest.raises(AdapterError, match=sentence):
        checkpoint.check_promise("LoRA of", ("a.0", "a.1"), found, "targets")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_a_value_that_is_not_finite_is_refused(value: float, tmp_path: Path) -> None:
    """The sentence names the tensor; weights are served in float32, where 1e300 is infinite."""
    path = tmp_path / "adapter_model.safetensors"
    save_file({"first": torch.ones(2), "second": torch.tensor([1.0, value], dtype=torch.float64)}, path)
    checkpoint = read_checkpoint(path)
    checkpoint.take("first")
    with pytest.raises(AdapterError, match=r"tensor 'second' has values that are NaN or infinite in float32$"):
        checkpoint.take("second")
