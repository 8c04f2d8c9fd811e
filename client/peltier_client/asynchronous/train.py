"""One training from its examples to its end, for asynchronous code."""

import logging
from collections.abc import Iterable

from peltier_client.asynchronous.files import AsyncFiles
from peltier_client.asynchronous.sender import AsyncSender
from peltier_client.asynchronous.trainings import AsyncTrainings
from peltier_client.errors import PeltierError
from peltier_client.protocol import Training
from peltier_client.resources.trainings import (
    Examples,
    NewTraining,
    TrainingOptions,
    TrainingSources,
    read_sources,
)

logger = logging.getLogger(__name__)


async def begin_training(
    sender: AsyncSender,
    task: str,
    examples: Examples,
    validation: Examples | float | None,
    options: TrainingOptions,
) -> Training:
    """Queue a training, after the upload of what is too long to be sent with it."""
    sources, files, uploaded = read_sources(examples, validation), AsyncFiles(sender), TrainingSources()
    try:
        for key, upload in sources.uploads.items():
            uploaded[key] = (await files.create(upload.content, upload.name)).id
            uploaded["owns_files"] = True
        asked: NewTraining = {**options, **sources.inline, **uploaded}
        return await AsyncTrainings(sender).create(task, **asked)
    except PeltierError:
        ids = (uploaded.get("file_id"), uploaded.get("validation_file_id"))
        await _delete(files, filter(None, ids))
        raise


async def _delete(files: AsyncFiles, ids: Iterable[str]) -> None:
    for file_id in ids:
        try:
            await files.delete(file_id)
        except PeltierError as error:
            logger.warning("the file %s of a training is not deleted: %s", file_id, error)
