"""On a full disk uploads fail, and everything else works."""

from contextlib import suppress
from pathlib import Path

import pytest

# Mounts a small disk for one process and its children, which need not be root.
_ON_A_SMALL_DISK = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
_MOUNT = 'mount -t tmpfs -o size=4m tmpfs "$0" && exec "$@"'
_CHUNK = bytes(4096)


@pytest.mark.slow
def test_a_full_disk_refuses_new_versions_and_keeps_the_old(start, specimens, tmp_path):
    """Uploads read 507 and leave nothing; what is published answers; once there is room, uploads work again."""
    disk = tmp_path / "store"
    disk.mkdir()
    server = start(under=(*_ON_A_SMALL_DISK, _MOUNT, str(disk)))
    assert server.upload(specimens[0].data).status_code == 201
    ballast = Path(f"/proc/{server.process.pid}/root{disk}/ballast")
    _fill(ballast)
    for specimen in specimens[1:4]:
        refused = server.upload(specimen.data)
        assert (refused.status_code, refused.json()["error"]["code"]) == (507, "storage_full"), refused.text
    assert server.client.get("/v1/adapters/demo/versions").json()["versions"][0]["version"] == 1
    assert server.predict("bad").status_code == 200

    ballast.unlink()
    assert server.upload(specimens[1].data).json()["version"] == 2
    assert server.client.get("/v1/adapters/demo/versions/2/artifact").content == specimens[1].data
    assert server.predict("bad").json()["adapter"]["version"] == 2


def _fill(ballast: Path) -> None:
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(_CHUNK)
