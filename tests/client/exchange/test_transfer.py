"""How far transfers are."""

from pathlib import Path

from peltier_client.asynchronous import AsyncClient
from peltier_client.synchronous import Client

Told = list[tuple[int, int | None]]


def test_an_upload_is_told(server) -> None:
    """In pieces, up to the whole; the same bytes are sent."""
    told: Told = []
    data = bytes(200_000)
    with Client(server.url) as client:
        client.upload(data, on_progress=lambda *moved: told.append(moved))
    assert len(told) > 3
    assert told[-1] == (200_000, 200_000)
    assert data in server.received[0].body


async def test_a_download_is_told(server, tmp_path: Path) -> None:
    """By both clients; the digest is checked as always."""
    told: Told = []
    with Client(server.url) as client:
        client.download("sst2", 1, tmp_path / "a", on_progress=lambda *moved: told.append(moved))
    async with AsyncClient(server.url) as client_:
        await client_.download("sst2", 1, tmp_path / "b", on_progress=lambda *moved: told.append(moved))
    assert told == [(8, 8), (8, 8)]
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == b"artifact"
