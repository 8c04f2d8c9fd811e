"""Takes in files: checks them, and stores them."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from peltier_client.errors import InvalidInput, PeltierError, TooLarge
from peltier_client.protocol.administration import Scope
from peltier_store.blobs.blobs import digest_of
from peltier_store.registry.errors import RegistryError
from peltier_store.registry.extensions import batches
from peltier_store.registry.extensions.queue_records import StoredFile

from peltier_server.auth.keyring import Caller
from peltier_server.catalog.publisher import Store
from peltier_server.extensions.files.examples import PIECE_BYTES, ExampleCheck, kind_of
from peltier_server.extensions.files.settings import FileSettings
from peltier_server.fairness.preparation import Preparation

FINE_TUNE, BATCH = "fine-tune", "batch"
# The scope that a file needs, by its purpose.
SCOPES: Mapping[str, Scope] = {FINE_TUNE: "train", BATCH: "predict", batches.RESULTS: "predict"}
MAX_FILE_NAME_CHARS = 255
# To check a byte takes about as long as to tokenise a hundredth of a character.
CHECK_COST = PIECE_BYTES // 100


def readable_purposes(caller: Caller) -> list[str]:
    """The purposes of the files that the scopes of the caller allow. For the caller there are no other files."""
    return [purpose for purpose, scope in SCOPES.items() if caller.may(scope)]


class FileIntake:
    """Checks and records files of callers. What it returns survives a crash."""

    def __init__(self, store: Store, preparation: Preparation, settings: FileSettings) -> None:
        self._max_bytes = settings.max_file_bytes
        self._store = store
        self._preparation = preparation
        self._max_rows = settings.max_file_rows

    async def add(self, caller: Caller, name: str, data: bytes, purpose: str = FINE_TUNE) -> StoredFile:
        """Stores an uploaded file. Raises `InvalidInput` with the first rule that it breaks, or `TooLarge`."""
        if len(data) > self._max_bytes:
            raise TooLarge(f"the file has {len(data)} bytes; at most {self._max_bytes} are allowed")
        if not 1 <= len(name) <= MAX_FILE_NAME_CHARS or not name.isprintable():
            raise InvalidInput(f"the file's name must have 1 to {MAX_FILE_NAME_CHARS} printable characters")
        # Before the check of the rows, which takes longer.
        await self._store.registry.files.require_room(caller.tenant, len(data))
        if purpose == BATCH and kind_of(name) != ".jsonl":
            raise InvalidInput(f"the file's name is {name[:80]!r}; that of a file for a batch must end in .jsonl")
        check = ExampleCheck(name, data, self._max_rows)
        while await self._preparation.run(caller.tenant, CHECK_COST, check.advance):
            pass
        return await self.store(caller, name, data, check.num_rows, purpose=purpose)

    async def store(  # noqa: PLR0913 - what a file is
        self,
        caller: Caller,
        name: str,
        data: bytes,
        num_rows: int,
        *,
        purpose: str = FINE_TUNE,
        is_inline: bool = False,
    ) -> StoredFile:
        """Stores a file without a check."""
        registry = self._store.registry
        reservation = await registry.reserve(await asyncio.to_thread(digest_of, data))
        try:
            await self._store.blobs.put(data)
            return await registry.files.add(
                caller.tenant,
                reservation,
                name=name,
                purpose=purpose,
                size_bytes=len(data),
                num_rows=num_rows,
                is_inline=is_inline,
                actor=caller.actor,
            )
        except BaseException:
            # A reservation expires, so an error of the registry must not replace the reason of the failed upload.
            with suppress(RegistryError):
                await registry.release(reservation)
            raise

    async def remove(self, caller: Caller, files: Sequence[StoredFile]) -> None:
        """Deletes the rows of a training that was refused. What cannot be deleted now stays as a file of its own."""
        for file in files:
            with suppress(RegistryError, PeltierError):
                await self._store.registry.files.remove(caller.tenant, file.id, actor=caller.actor)
