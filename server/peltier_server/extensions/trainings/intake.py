"""Takes in requests for trainings: checks them, and stores what they bring."""

import asyncio
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from peltier_adapters.errors import AdapterError, first_of
from peltier_adapters.presets.presets import find_preset
from peltier_adapters.spec.tasks import ENCODER_TYPES
from peltier_adapters.spec.text_rules import label_problem
from peltier_backbone.checkpoint.config import BackboneConfig
from peltier_client.errors import InvalidInput, QuotaExceeded, TooLarge
from peltier_client.protocol.trainings import TrainingRequest
from peltier_store.registry.errors import TrainingTooLarge, TrainingWaits
from peltier_store.registry.extensions.queue_records import IdempotencyKey, StoredFile, StoredTraining, TrainingDraft

from peltier_server.auth.keyring import Caller
from peltier_server.catalog.publisher import Store
from peltier_server.extensions.files.examples import to_jsonl
from peltier_server.extensions.files.intake import CHECK_COST, FINE_TUNE, FileIntake
from peltier_server.fairness.preparation import Preparation

# A training of the tenant has to end, or a minute of its day to pass.
_RETRY_SECONDS = 60.0
# The types of tasks whose labels are names. Without a type a task is a classification.
_NAMED = (None, "classification", "multilabel", "token-classification")
_LABEL_COLUMN = "label"
_NUM_SHOWN = 100
_Rows = Sequence[Mapping[str, Any]]


class TrainingIntake:
    """Checks and records trainings of callers. What it returns survives a crash. `can_guard` says whether this server
    judges guarded changes of aliases."""

    def __init__(
        self, files: FileIntake, store: Store, config: BackboneConfig, preparation: Preparation, *, can_guard: bool
    ) -> None:
        self._files = files
        self._store = store
        self._config = config
        self._preparation = preparation
        self._can_guard = can_guard

    async def create(
        self, caller: Caller, request: TrainingRequest, key: IdempotencyKey | None = None
    ) -> StoredTraining:
        """Queues a training, or finds the one of an earlier request with this key. Its rows become files of their own.
        Raises the error of a rule that the request breaks, or of a quota."""
        self._check(request)
        await self._preparation.run(caller.tenant, CHECK_COST, lambda: _check_labels(request))
        created = list[StoredFile]()
        try:
            train = await self._file(caller, "examples", request.examples, request.file_id, created)
            validation = await self._file(caller, "validation", request.validation, request.validation_file_id, created)
            assert train is not None, "the protocol requires examples or a file"
            draft = TrainingDraft(
                request.task,
                request.model_dump(mode="json", exclude={"examples", "validation"}, exclude_unset=True),
                train.id,
                None if validation is None else validation.id,
                keep_examples=request.keep_examples,
                owns_files=request.owns_files,
            )
            with _quota_of_trainings():
                training = await self._store.registry.trainings.create(
                    caller.tenant, draft, actor=caller.actor, key=key
                )
            # Those of a request that was repeated while it was answered have taken the place of these.
            used = (training.train_file_id, training.validation_file_id)
            await self._files.remove(caller, [file for file in created if file.id not in used])
            return training
        except BaseException:
            await asyncio.shield(self._files.remove(caller, created))
            raise

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
        if request.publish is not None and request.publish.guard is not None and not self._can_guard:
            raise InvalidInput("publish.guard begins a guarded change, and this server is without rollouts")

    def _check_rows(self, tenant: str, num_rows: int) -> None:
        limit = self._preparation.enforcer.quotas_of(tenant).max_training_rows
        if limit is not None and num_rows > limit:
            raise TooLarge(
                f"the training has {num_rows} examples, and a training of tenant {tenant!r} may have {limit}"
            )

    async def _file(
        self, caller: Caller, what: str, rows: _Rows | None, file_id: str | None, created: list[StoredFile]
    ) -> StoredFile | None:
        """The file of these rows, which is then in `created`, or that of this id; None without both."""
        if rows is None and file_id is not None:
            return await self._store.registry.files.find(caller.tenant, file_id, purposes=[FINE_TUNE])
        if rows is None:
            return None
        self._check_rows(caller.tenant, len(rows))
        data = await self._preparation.run(caller.tenant, CHECK_COST, lambda: to_jsonl(what, rows))
        created.append(await self._files.store(caller, f"{what}.jsonl", data, len(rows), is_inline=True))
        return created[-1]


@contextmanager
def _quota_of_trainings() -> Iterator[None]:
    try:
        yield
    except TrainingTooLarge as error:
        raise TooLarge(str(error)) from None
    except TrainingWaits as error:
        raise QuotaExceeded(str(error), retry_after=_RETRY_SECONDS) from None


def _check_labels(request: TrainingRequest) -> None:
    """Refuses labels that no artifact may have, before a training waits for a worker, which checks those in files.

    Raises `InvalidInput` with the first hundred labels of the request that an artifact would refuse, and their
    rows."""
    if request.task_type in _NAMED and (found := list(islice(_problems(request), _NUM_SHOWN))):
        raise InvalidInput(first_of(found[0], len(found)), found)


def _problems(request: TrainingRequest) -> Iterator[str]:
    for number, label in enumerate(request.labels or ()):
        yield from _problem(f"labels.{number}", label)
    for name in ("examples", "validation"):
        rows: _Rows = getattr(request, name) or ()
        for number, row in enumerate(rows):
            for label in _labels_in(row.get(request.label_column or _LABEL_COLUMN), request.task_type):
                yield from _problem(f"row {number} of {name}", label)


def _problem(where: str, label: str) -> Iterator[str]:
    if (problem := label_problem(label)) is not None:
        yield f"{where}: label {reprlib.repr(label)} {problem}"


def _labels_in(cell: object, task_type: str | None) -> Iterator[str]:
    """The labels of a row: a text, a list of texts, or the entities of a list."""
    if isinstance(cell, str):
        # Only the worker knows how a text is divided into several labels.
        if task_type in (None, "classification") and cell.strip():
            yield cell
    elif isinstance(cell, list):
        for one in cell:
            label = one.get("label") if isinstance(one, dict) else one
            if isinstance(label, str) and label:
                yield label
