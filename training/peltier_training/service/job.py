"""One training in a process of its own: its files are read, checked, trained on and measured in its directory."""

import os
import shutil
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from peltier_backbone.machine.memory import is_out_of_memory
from tqdm import tqdm  # type: ignore[import-untyped]

from peltier_training.config.preparation import Prepared
from peltier_training.errors import TrainingError
from peltier_training.executor.executor import write_output_to
from peltier_training.fit.preflight import Preflight
from peltier_training.report.page import report_paths
from peltier_training.service.callbacks import CheckpointTimes, Deadline, Observer, unpack
from peltier_training.service.child import (
    ARCHIVE,
    ASKED,
    Checked,
    Completed,
    Evaluating,
    Message,
    Refused,
    TrainingJob,
)
from peltier_training.service.examples import check_lines, write_columns
from peltier_training.service.memory_check import check_memory
from peltier_training.service.request import CHECKPOINTS, RequestedTraining, prepare_request
from peltier_training.train import finish, learn

_LOG = "log.txt"


def run_job(job: TrainingJob, send: Callable[[Message], None]) -> None:
    """Run a job in this process and send its messages."""
    _die_first()
    os.chdir(job.directory)  # messages have the names of files without the folders of this machine
    write_output_to(Path(_LOG))
    tqdm.set_lock(threading.RLock())  # its own is a semaphore of the machine, which a killed process leaves behind
    send(train_job(job, send))


def train_job(job: TrainingJob, send: Callable[[Message], None]) -> Completed | Refused:
    """The result of a job in the current directory. Every error becomes a reason."""
    try:
        return _train(job, send)
    except Exception as error:
        if getattr(error, "is_user_error", False):
            return Refused(" ".join(str(error).split()))
        if is_out_of_memory(error):
            return Refused("memory ran out; train with a smaller batch_size or max_length")
        reason = f"an error of the worker, {type(error).__name__}, ended the training; the worker's log has its details"
        return Refused(reason, traceback.format_exc())


def _train(job: TrainingJob, send: Callable[[Message], None]) -> Completed:
    request = RequestedTraining.read(job.request)
    prepared = _prepare(job, request)
    preflight = Preflight(prepared, job.seconds_per_token)
    preflight.check()
    check_memory(prepared)
    found = preflight.report()
    send(Checked(found))
    deadline = Deadline(prepared.run, request.budget, job.spent)
    callbacks = (deadline, Observer(prepared.run, deadline, ARCHIVE, send), CheckpointTimes(ASKED))
    learned = learn(prepared, callbacks, preflight=found)
    learned = replace(learned, history=deadline.explain(learned.history))
    send(Evaluating())
    result = finish(learned)
    tokens = learned.history.epochs * preflight.tokens_per_epoch
    return Completed(
        artifact=prepared.run.output,
        report=report_paths(prepared.run.output)[0],
        metrics=result.metrics,
        seconds_per_token=learned.history.seconds / tokens if tokens > 0 else None,
    )


def _prepare(job: TrainingJob, request: RequestedTraining) -> Prepared:
    for path in (job.train, job.validation):
        if path is not None:
            check_lines(path)
            if request.format == "chat":
                _write_columns(path)
    return prepare_request(request, job.train, job.validation, job.machine, resume=_restore())


def _write_columns(path: Path) -> None:
    """Replace chats by columns."""
    columns = path.with_suffix(".columns")
    write_columns(path, columns)
    columns.replace(path)


def _restore() -> bool:
    """Whether there is a checkpoint to go on from. What a process has left that died here is not one."""
    shutil.rmtree(CHECKPOINTS, ignore_errors=True)
    if not ARCHIVE.exists():
        return False
    try:
        unpack(ARCHIVE.read_bytes(), CHECKPOINTS)
    except TrainingError:
        traceback.print_exc()
        shutil.rmtree(CHECKPOINTS, ignore_errors=True)
        return False
    return True


def _die_first() -> None:
    """Have Linux kill this process before all others if the machine's memory runs out. Other systems have no such
    file, and some sandboxes refuse the write; then the kernel chooses."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="utf-8")
