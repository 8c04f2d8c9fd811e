"""The worker: takes trainings from the registry, and has each done by a process of its own."""

import asyncio
import fcntl
import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from peltier_store.blobs.blobs import BlobDamaged, BlobError, BlobNotFound
from peltier_store.registry.errors import FileUnknown, LeaseLost, QuotaReached, RegistryError, RegistryGone
from peltier_store.registry.extensions.queue_records import StoredFile, StoredTraining

from peltier_training.errors import TrainingError
from peltier_training.executor.executor import Died
from peltier_training.service.child import ARCHIVE, Children, Completed, Refused, Saved, TrainingJob
from peltier_training.service.examples import check_size, write_file
from peltier_training.service.lease import TrainingLease, WorkerContext
from peltier_training.service.request import Machine

logger = logging.getLogger(__name__)
_PREFIX = "peltier-worker-"
_LOCK = "lock"
# Processes of one training that may die without a new checkpoint.
_MAX_DEATHS = 2


@contextmanager
def open_scratch(root: Path | None = None) -> Iterator[Path]:
    """A folder that only this user reads, until the end of the block. If its process is killed, the next one that opens
    a scratch on the machine removes it, because a lock of the process ends with it."""
    root = root or Path(tempfile.gettempdir())
    _remove_abandoned(root)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(root: Path) -> None:
    for folder in root.glob(f"{_PREFIX}*"):
        try:
            with (folder / _LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # it is in use, or another user's
            continue


class TrainingWorker:
    """Trains with `machine`, one training after another, until it is stopped. `once`: until no training waits."""

    def __init__(self, context: WorkerContext, machine: Machine, *, once: bool = False) -> None:
        self._context, self._machine, self._once = context, machine, once
        self._children = Children()
        self._stopping = asyncio.Event()
        self._rates: dict[tuple[str, str], float] = {}

    def stop(self) -> None:
        """End soon: the training of this worker goes back to the queue with its last checkpoint."""
        self._stopping.set()

    async def run(self) -> None:
        await self._children.ready()
        with open_scratch() as scratch:
            while not self._stopping.is_set():
                training = await self._claim()
                if training is not None:
                    await self._take(training, scratch)
                elif self._once:
                    return
                else:
                    await self._rest()

    async def _claim(self) -> StoredTraining | None:
        try:
            return await self._context.registry.trainings.claim(self._context.worker)
        except RegistryGone:
            raise
        except RegistryError as error:
            logger.warning("no training can be claimed: %s", error)
            await self._rest()
            return None

    async def _rest(self) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), self._context.intervals.idle_seconds)
        except TimeoutError:
            return

    async def _take(self, training: StoredTraining, scratch: Path) -> None:
        logger.info("%s: task %s of tenant %s", training.id, training.task, training.tenant)
        folder = Path(tempfile.mkdtemp(prefix=f"{training.id}-", dir=scratch))
        lease = TrainingLease(self._context, training, folder / ARCHIVE)
        try:
            await self._work_within_quota(lease, folder)
        except LeaseLost as error:
            logger.warning("%s", error)
        except RegistryGone:
            raise
        except (RegistryError, BlobError) as error:
            logger.warning("%s: %s", training.id, error)
            await self._rest()
        finally:
            lease.abandon()
            shutil.rmtree(folder, ignore_errors=True)

    async def _work_within_quota(self, lease: TrainingLease, folder: Path) -> None:
        try:
            await self._work(lease, folder)
        except QuotaReached as error:
            await lease.fail(f"what it has learned cannot be stored: {error}")

    async def _work(self, lease: TrainingLease, folder: Path) -> None:
        """Do the training until it ends, its owner has a wish, its tenant's minutes are used up, or this worker has to
        stop."""
        work, wish = asyncio.create_task(self._carry_out(lease, folder)), asyncio.create_task(lease.keep())
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((work, wish, stop), return_when=asyncio.FIRST_COMPLETED)
            wished = wish.result() if wish.done() and not work.done() else None
            if not work.done() and wished != "cancel":
                await lease.wait_for_checkpoint([work, *([] if stop.done() else [stop])], wished)
            has_ended = work.done()
        finally:
            for task in (work, wish, stop):
                task.cancel()
            await asyncio.wait((work, wish, stop))
        if has_ended:
            work.result()
        elif wished is not None:
            logger.info("%s: %s", lease.training.id, wished)
            await lease.stop(wished)
        else:
            await lease.give_back()

    async def _carry_out(self, lease: TrainingLease, folder: Path) -> None:
        """From the files to the end of the lease."""
        try:
            train, validation = await self._fetch(lease, folder)
        except (TrainingError, FileUnknown, BlobNotFound, BlobDamaged) as error:
            await lease.fail(str(error))
            return
        job = TrainingJob(
            folder,
            {**lease.training.request, "task": lease.training.task},
            train,
            validation,
            self._machine,
            spent=lease.training.seconds,
            seconds_per_token=self._rates.get(_kind(lease.training)),
        )
        end = await self._train(lease, job)
        if isinstance(end, Completed):
            await self._complete(lease, folder, end)
            return
        if end.trace is not None:
            logger.error("%s: %s", lease.training.id, end.trace)
        logger.info("%s: failed: %s", lease.training.id, end.reason)
        await lease.fail(end.reason)

    async def _fetch(self, lease: TrainingLease, folder: Path) -> tuple[Path, Path | None]:
        """Write the files of a training and its last checkpoint into its folder."""
        training, context = lease.training, self._context
        if training.checkpoint_digest is not None:
            digest = training.checkpoint_digest
            (folder / ARCHIVE).write_bytes(await lease.retry(lambda: context.blobs.get(digest)))
        paths = []
        for part, file_id in (("train", training.train_file_id), ("validation", training.validation_file_id)):
            if file_id is None and part == "train":
                raise TrainingError("the examples of the training were deleted")
            paths.append(None if file_id is None else await self._fetch_file(lease, folder, part, file_id))
        train, validation = paths
        assert train is not None, "checked above"
        return train, validation

    async def _fetch_file(self, lease: TrainingLease, folder: Path, part: str, file_id: str) -> Path:
        registry, blobs = self._context.registry, self._context.blobs
        file: StoredFile = await lease.retry(lambda: registry.files.find(lease.training.tenant, file_id))
        check_size(file.name, file.size_bytes)
        data = await lease.retry(lambda: blobs.get(file.digest))
        return write_file(folder, part, file.name, data, file.size_bytes)

    async def _train(self, lease: TrainingLease, job: TrainingJob) -> Completed | Refused:
        """The end of a process of the job, or of the next one if it dies."""
        deaths = 0
        while True:
            has_saved = False
            async with self._children.start(job) as process:
                while not isinstance(message := await asyncio.to_thread(process.read), Completed | Refused | Died):
                    has_saved |= isinstance(message, Saved)
                    lease.handle(message)
            if not isinstance(message, Died):
                return message
            deaths = 1 if has_saved else deaths + 1
            what = f"the process of the training {message.how}; memory may have run out"
            if deaths >= _MAX_DEATHS:
                return Refused(f"{what}; {deaths} processes ended like this")
            logger.warning("%s: %s", lease.training.id, what)
            lease.note(f"{what[:1].upper()}{what[1:]}; it is started again.")

    async def _complete(self, lease: TrainingLease, folder: Path, found: Completed) -> None:
        if found.seconds_per_token is not None:
            self._rates[_kind(lease.training)] = found.seconds_per_token
        artifact, report = (folder / found.artifact).read_bytes(), (folder / found.report).read_text(encoding="utf-8")
        await lease.complete(artifact, report, found.metrics)
        metrics = ", ".join(f"{name} {value:.4f}" for name, value in found.metrics.items())
        logger.info("%s: %s", lease.training.id, metrics)


def _kind(training: StoredTraining) -> tuple[str, str]:
    """What a rate is known for: the preset or recipe, and the first block that is trained."""
    settings = training.request.get("settings") or {}
    return str(training.request.get("preset") or training.request.get("recipe")), str(settings.get("first_block") or 0)
