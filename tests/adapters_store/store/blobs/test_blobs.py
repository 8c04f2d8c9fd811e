import asyncio
import hashlib
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from peltier_adapters.artifact.source import ByteSource
from peltier_store.blobs.blobs import BlobDamaged, BlobError, BlobNotFound, Blobs, digest_of
from peltier_store.blobs.location import locate

from tests.support.power_loss import PowerLoss

DATA = b"the bytes of an adapter"
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"


@pytest.fixture
def blobs(location: str) -> Blobs:
    return Blobs.open(location)


@pytest.fixture
def local(tmp_path: Path) -> Blobs:
    return Blobs.open(tmp_path / "new" / "blobs")


async def overwrite(location: str, data: bytes) -> None:
    """Damages the stored blob behind the back of its store."""
    await locate(location).store.put_async(DIGEST.replace(":", "/"), data)


def stored_file(tmp_path: Path, digest: str = DIGEST) -> Path:
    return tmp_path / "new" / "blobs" / digest.replace(":", "/")


async def test_what_was_put_comes_back_from_a_store_opened_anew(blobs: Blobs, location: str) -> None:
    """The digest is the sha256 of the bytes, and still names them after a restart."""
    assert await blobs.put(DATA) == DIGEST == digest_of(DATA)
    assert await Blobs.open(location).get(DIGEST) == DATA


@pytest.mark.parametrize("size", [0, 6 * 2**20])
async def test_any_size_is_stored_once(blobs: Blobs, size: int) -> None:
    """Empty bytes and bytes of several multipart parts can be put twice."""
    data = os.urandom(size)
    assert await blobs.put(data) == await blobs.put(data)
    assert await blobs.get(digest_of(data)) == data


async def test_a_large_blob_comes_in_pieces(blobs: Blobs) -> None:
    """Each piece has at most 256 KiB, and together they are the blob."""
    data = os.urandom(2**20 + 1)
    pieces = [piece async for piece in blobs.pieces(await blobs.put(data), len(data))]
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) == 2**18


@pytest.mark.parametrize("damage", [b"", bytes(2**19 - 1), bytes(2**19)])
async def test_the_last_piece_of_a_damaged_blob_never_comes(blobs: Blobs, location: str, damage: bytes) -> None:
    """So no reader takes a damaged blob for a complete one."""
    data = os.urandom(2**19)
    digest = await blobs.put(data)
    await locate(location).store.put_async(digest.replace(":", "/"), damage)
    pieces, got = blobs.pieces(digest, len(data)), list[bytes]()

    async def collect() -> None:
        async for piece in pieces:
            got.append(piece)

    with pytest.raises(BlobError):
        await collect()
    assert sum(map(len, got)) <= 2**18


async def test_pieces_of_an_unknown_digest_are_not_found(blobs: Blobs) -> None:
    """The first piece already raises the error."""
    with pytest.raises(BlobNotFound, match="holds no blob"):
        await anext(blobs.pieces(DIGEST, 1))


async def test_concurrent_puts_of_the_same_bytes_all_succeed(blobs: Blobs, location: str) -> None:
    """Each caller gets the digest, and one blob has the bytes."""
    other = Blobs.open(location)
    digests = await asyncio.gather(*(store.put(DATA) for store in [blobs, other] * 10))
    assert set(digests) == {DIGEST}
    assert [entry.digest async for entry in blobs.entries()] == [DIGEST]
    assert await blobs.get(DIGEST) == DATA


async def test_the_list_has_every_blob_and_nothing_else(blobs: Blobs, location: str) -> None:
    """Each blob is listed once with its size and time; other files are left out."""
    before = datetime.now(UTC)
    stored = {await blobs.put(b"%d" % number) for number in range(30)}
    await blobs.owner.claim("somebody")
    await locate(location).store.put_async("sha256/README", b"not a blob")
    after, minute = datetime.now(UTC), timedelta(minutes=1)
    entries = [entry async for entry in blobs.entries()]
    assert len(entries) == 30
    assert {entry.digest for entry in entries} == stored
    assert sorted(entry.size_bytes for entry in entries) == [1] * 10 + [2] * 20
    assert all(before - minute < entry.modified_at < after + minute for entry in entries)


async def test_of_many_claimants_one_is_the_owner(blobs: Blobs, location: str) -> None:
    """All claimants, and every later opener of the store, get the same owner until the store is handed over."""
    assert await blobs.owner.read() is None
    (owner,) = set(await asyncio.gather(*(blobs.owner.claim(f"claimant-{number}") for number in range(8))))
    assert await Blobs.open(location).owner.read() == owner
    await blobs.owner.hand_over("another")
    assert await Blobs.open(location).owner.claim(owner) == "another"


async def test_a_put_has_reached_the_disk_when_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file, its directory and the parents of all new directories are synced."""
    power_loss = PowerLoss(monkeypatch)
    await Blobs.open(tmp_path / "new" / "blobs").put(DATA)
    path = stored_file(tmp_path)
    assert power_loss.left(path) == DATA
    assert power_loss.synced == {path, *path.parents} - {*tmp_path.parents}


async def test_a_damaged_blob_that_is_put_again_has_reached_the_disk(local, tmp_path, monkeypatch):
    """A replacement is as durable as a new blob."""
    await local.put(DATA)
    path = stored_file(tmp_path)
    path.chmod(0o600)
    path.write_bytes(b"damaged")
    power_loss = PowerLoss(monkeypatch)
    await local.put(DATA)
    assert power_loss.left(path) == DATA


async def test_an_owner_has_reached_the_disk_when_it_is_told(local, tmp_path, monkeypatch):
    """A registry still owns a claimed or transferred store after a power loss."""
    power_loss, path = PowerLoss(monkeypatch), tmp_path / "new" / "blobs" / "owner"
    await local.owner.claim("one")
    assert power_loss.left(path) == b"one"
    await local.owner.hand_over("another")
    assert power_loss.left(path) == b"another"


@pytest.mark.parametrize("damaged", [b"", DATA[:-1], DATA + b"\0", b"T" + DATA[1:]])
async def test_a_damaged_blob_is_refused_until_it_is_put_again(blobs: Blobs, location: str, damaged: bytes) -> None:
    """Bytes with a wrong digest are never returned, and a put of the right bytes replaces them."""
    await blobs.put(DATA)
    await overwrite(location, damaged)
    with pytest.raises(BlobDamaged, match="is damaged"):
        await blobs.get(DIGEST)
    await blobs.put(DATA)
    assert await blobs.get(DIGEST) == DATA


async def test_the_remains_of_a_killed_put_do_no_harm(local: Blobs, tmp_path: Path) -> None:
    """A partial file is not read as the blob and does not prevent a new put."""
    stored_file(tmp_path).with_name(DIGEST.removeprefix("sha256:") + "#1").write_bytes(DATA[:5])
    with pytest.raises(BlobNotFound):
        await local.get(DIGEST)
    assert [entry async for entry in local.entries()] == []
    await local.put(DATA)
    assert await local.get(DIGEST) == DATA


async def test_a_deleted_blob_is_gone_and_can_come_back(blobs: Blobs) -> None:
    """A second deletion is no error, and the same bytes can be stored again."""
    await blobs.put(DATA)
    await blobs.delete(DIGEST)
    await blobs.delete(DIGEST)
    with pytest.raises(BlobNotFound):
        await blobs.get(DIGEST)
    assert await blobs.put(DATA) == DIGEST


@pytest.mark.parametrize(
    "digest",
    [
        "",
        "abc",
        DIGEST.upper(),
        DIGEST[:-1],
        DIGEST + "0",
        DIGEST + "\n",
        "sha256:../../../etc/passwd",
        "sha256:\ud800",
    ],
)
async def test_a_malformed_digest_is_refused(blobs: Blobs, digest: str) -> None:
    """Only 'sha256:' and 64 hexadecimal digits become the name of a file."""
    for call in (blobs.get, blobs.delete):
        with pytest.raises(BlobError, match="64 lower-case hexadecimal digits"):
            await call(digest)


@pytest.mark.parametrize("location", ["/proc/peltier", "/dev/null", "/dev/null/blobs", "/a\0b"])
def test_a_place_that_cannot_be_written_is_refused_in_one_line(location: str) -> None:
    """The error comes at start-up, and names the store and the reason."""
    with pytest.raises(BlobError, match=r"^the blob store '/.*' cannot be opened: [^\n]+$"):
        Blobs.open(location)


async def test_a_store_that_fails_later_says_so_in_one_line(local: Blobs, tmp_path: Path) -> None:
    """A put that the disk refuses raises an error that names the blob."""
    stored_file(tmp_path).parent.rmdir()
    stored_file(tmp_path).parent.write_bytes(b"")
    with pytest.raises(BlobError, match=rf"^the blob {DIGEST} cannot be stored: [^\n]+$"):
        await local.put(DATA)


async def test_a_sweep_passes_over_what_a_put_takes_away_meanwhile(local: Blobs, tmp_path: Path) -> None:
    """A put may rename its partial file at any moment, also between the sweep's listing and its check."""
    await local.put(DATA)
    # A link to nowhere is listed, and not there when it is looked at.
    stored_file(tmp_path, f"{DIGEST}#1").symlink_to(tmp_path / "nowhere")
    assert await local.sweep(timedelta(hours=1)) == 0


async def test_a_wrong_clock_sweeps_no_file_that_is_being_written(local, tmp_path, monkeypatch):
    """The age of files in a shared directory is that by the clock of their file system."""
    await local.put(DATA)
    young, old = (stored_file(tmp_path, f"{DIGEST}#{number}") for number in (1, 2))
    young.write_bytes(b"a part")
    old.write_bytes(b"a part")
    now = time.time()
    os.utime(old, (now, now - 7200))
    monkeypatch.setattr(time, "time", lambda: now + 10_800)
    assert await local.sweep(timedelta(hours=1)) == 1
    assert [path.name for path in sorted(young.parent.iterdir())] == [stored_file(tmp_path).name, young.name]


@pytest.mark.parametrize("num_bytes", [5, 600_000])
async def test_damaged_bytes_are_called_damaged_whatever_their_reader_says(blobs, location, num_bytes):
    """The reader gets bytes before they are checked. Its result or error, and how much it reads, do not matter."""
    await blobs.put(DATA)
    await overwrite(location, bytes(num_bytes))

    def accept_all(source: ByteSource) -> bytes:
        return source.read(source.num_bytes)

    def accept_none(source: ByteSource) -> None:
        return None

    def refuse(source: ByteSource) -> None:
        raise ValueError(source.read(5))

    for parse in (accept_all, accept_none, refuse):
        with pytest.raises(BlobDamaged, match=DIGEST):
            await blobs.load(DIGEST, parse)
