"""What serves trainings."""

from dataclasses import dataclass

from peltier_server.extensions.trainings.event_feed import EventFeed
from peltier_server.extensions.trainings.intake import TrainingIntake
from peltier_server.extensions.trainings.publication import TrainingPublisher
from peltier_server.extensions.trainings.worker_process import WorkerProcess


@dataclass(frozen=True)
class Trainings:
    """The parts of a ready server that serve trainings; `worker` is None if the settings want none beside it."""

    intake: TrainingIntake
    event_feed: EventFeed
    publisher: TrainingPublisher
    worker: WorkerProcess | None

    def begin(self) -> None:
        """Starts to publish what workers leave, and the worker."""
        self.publisher.start()
        if self.worker is not None:
            self.worker.start()

    async def close(self) -> None:
        """Ends the worker, and publishes no more."""
        if self.worker is not None:
            await self.worker.close()
        await self.publisher.close()
