"""Takes in files, of examples or for batches, and requests for trainings: checks them, and stores what they bring."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from peltier_adapters.errors import AdapterError
from peltier_adapters.presets.presets import find_preset
from peltier_adapters.spec.tasks import ENCODER_TYPES
from peltier_backbone.checkpoint.config import BackboneConfig
from peltier_client.errors import InvalidInput, PeltierError, QuotaExceeded, TooLarge
from peltier_client.protocol import Scope, TrainingRequest
from peltier_store.blobs.blobs import digest_of
from peltier_store.registry import (
    IdempotencyKey,
    RegistryError,
    StoredFile,
    StoredTraining,
    TrainingDraft,
    TrainingTooLarge,
    TrainingWaits,
)
from peltier_store.registry.extensions import batches

from peltier_server import retry_hints
from peltier_server.auth.keyring import Caller
from peltier_server.catalog.publisher import Store
from peltier_server.fairness.preparation import Preparation
from peltier_server.settings import TrainingSettings
from peltier_server.trainings.examples import PIECE_BYTES, ExampleCheck, kind_of, to_jsonl
from peltier_server.trainings.labels import check_labels

FINE_TUNE, BATCH = "fine-tune", "batch"
# The scope that a file needs, by its purpose.
SCOPES: Mapping[str, Scope] = {FINE_TUNE: "train", BATCH: "predict", batches.RESULTS: "predict"}
MAX_FILE_NAME_CHARS = 255
# To check a byte takes about as long as to tokenise a hundredth of a character.
_COST = PIECE_BYTES // 100
_Rows = Sequence[Mapping[str, Any]]


def readable_purposes(caller: Caller) -> list[str]:
    """The purposes of the files that the scopes of the caller allow. For the caller there are no other files."""
    return [purpose for purpose, scope in SCOPES.items() if caller.may(scope)]


class TrainingIntake:
    """Checks and records files and trainings of callers. What it returns survives a crash."""

    def __init__(
        self, store: Store, config: BackboneConfig, preparation: Preparation, settings: TrainingSettings
    ) -> None:
        self.max_file_bytes = settings.max_file_bytes
        self._store = store
        self._config = config
        self._preparation = preparation
        self._max_rows = settings.max_file_rows

    async def add_file(self, caller: Caller, name: str, data: bytes, purpose: str = FINE_TUNE) -> StoredFile:
        """Stores an uploaded file. Raises `InvalidInput` with the first rule that it breaks, or `TooLarge`."""
        if len(data) > self.max_file_bytes:
            raise TooLarge(f"the file has {len(data)} bytes; at most {self.max_file_bytes} are allowed")
        if not 1 <= len(name) <= MAX_FILE_NAME_CHARS or not name.isprintable():
            raise InvalidInput(f"the file's name must have 1 to {MAX_FILE_NAME_CHARS} printable characters")
        # Before the check of the rows, which takes longer.
        await self._store.registry.files.require_room(caller.tenant, len(data))
        if purpose == BATCH and kind_of(name) != ".jsonl":
            raise InvalidInput(f"the file's name is {name[:80]!r}; that of a file for a batch must end in .jsonl")
        check = ExampleCheck(name, data, self._max_rows)
        while await self._preparation.run(caller.tenant, _COST, check.advance):
            pass
        return await self._store_file(caller, name, data, check.num_rows, purpose=purpose)

    async def create(
        self, caller: Caller, request: TrainingRequest, key: IdempotencyKey | None = None
    ) -> StoredTraining:
        """Queues a training, or finds the one of an earlier request with this key. Its rows become files of their own.
        Raises the error of a rule that the request breaks, or of a quota."""
        self._check(request)
        await self._preparation.run(caller.tenant, _COST, lambda: check_labels(request))
        created = list[StoredFile]()
        try:
            train = await self._file(caller, "examples", request.examples, request.file_id, created)
            validation = await self._file(caller, "validation", request.validation, request.validation_file_id, created)
            assert train is not None, "the protocol requires examples or a file"
            self._check_rows(caller.tenant, sum(file.num_rows for file in (train, validation) if file is not None))
            draft = TrainingDraft(
                request.task,
                request.model_dump(mode="json", exclude={"examples", "validation"}, exclude_unset=True),
                train.id,
                None if validation is None else validation.id,
                keep_examples=request.keep_examples,
                owns_files=request.owns_files,
            )
            training = await self._create(caller, draft, key)
            # Those of a request that was repeated while it was answered have taken the place of these.
            used = (training.train_file_id, training.validation_file_id)
            await self._remove(caller, [file for file in created if file.id not in used])
            return training
        except BaseException:
            await asyncio.shield(self._remove(caller, created))
            raise

    async def _create(self, caller: Caller, draft: TrainingDraft, key: IdempotencyKey | None) -> StoredTraining:
        with _quota_of_trainings():
            return await self._store.registry.trainings.create(caller.tenant, draft, actor=caller.actor, key=key)

    async def find_repeated(self, caller: Caller, key: IdempotencyKey | None) -> StoredTraining | None:
        """The training that an earlier request with this key has created. Raises `InvalidRecord` for the key of another
        request."""
        return await self._store.registry.trainings.find_repeated(caller.tenant, key)

    async def resume(self, caller: Caller, training_id: str) -> StoredTraining:
        """Queues a paused or failed training again. Raises the error of a quota as `create`."""
        with _quota_of_trainings():
            return await self._store.registry.trainings.resume(caller.tenant, training_id, actor=caller.actor)

    def _check(self, request: TrainingRequest) -> None:
        try:
            if request.preset is not None:
                find_preset(request.preset).variant(self._config)
        except AdapterError as error:
            raise InvalidInput(str(error)) from None
        if request.task_type == "text2text" and not self._config.generates:
            raise InvalidInput(f"text2text needs a T5, and this server's backbone is {self._config.family}")
        if request.task_type in ENCODER_TYPES and self._config.generates:
            raise InvalidInput(f"{request.task_type} needs an encoder, and this server's backbone is a T5")

    def _check_rows(self, tenant: str, num_rows: int) -> None:
        limit = self._preparation.enforcer.max_training_rows(tenant)
        if limit is not None and num_rows > limit:
            raise TooLarge(
                f"the training has {num_rows} examples, and a training of tenant {tenant!r} may have {limit}"
            )

    async def _file(
        self, caller: Caller, what: str, rows: _Rows | None, file_id: str | None, created: list[StoredFile]
    ) -> StoredFile | None:
        """The file of these rows, which is then in `created`, or that of this id; None without both."""
        if rows is None:
            return None if file_id is None else await self._find(caller, file_id)
        self._check_rows(caller.tenant, len(rows))
        data = await self._preparation.run(caller.tenant, _COST, lambda: to_jsonl(what, rows))
        created.append(await self._store_file(caller, f"{what}.jsonl", data, len(rows), is_inline=True))
        return created[-1]

    async def _find(self, caller: Caller, file_id: str) -> StoredFile:
        return await self._store.registry.files.find(caller.tenant, file_id, purposes=[FINE_TUNE])

    async def _store_file(  # noqa: PLR0913 - what a file is
        self,
        caller: Caller,
        name: str,
        data: bytes,
        num_rows: int,
        *,
        purpose: str = FINE_TUNE,
        is_inline: bool = False,
    ) -> StoredFile:
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

    async def _remove(self, caller: Caller, files: Sequence[StoredFile]) -> None:
        """Deletes the rows of a training that was refused. What cannot be deleted now stays as a file of its own."""
        for file in files:
            with suppress(RegistryError, PeltierError):
                await self._store.registry.files.remove(caller.tenant, file.id, actor=caller.actor)


@contextmanager
def _quota_of_trainings() -> Iterator[None]:
    try:
        yield
    except TrainingTooLarge as error:
        raise TooLarge(str(error)) from None
    except TrainingWaits as error:
        raise QuotaExceeded(str(error), retry_after=retry_hints.TRAINING_ENDED) from None
