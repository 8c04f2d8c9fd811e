"""The settings of replicas on Ray."""

from typing import Self

from pydantic import model_validator

from peltier_server.settings_group import Count, SettingsGroup, setting


class ClusterSettings(SettingsGroup):
    """Replicas on Ray Serve, and training workers as tasks of Ray."""

    ray: bool = setting(
        False, "Serve with replicas on Ray Serve: on the cluster at RAY_ADDRESS, or else on this machine."
    )
    min_replicas: Count = setting(1, "With ray: the least number of replicas.")
    max_replicas: Count = setting(1, "With ray: the most replicas.")
    max_workers: Count = setting(
        1, "With ray and worker: the most training workers at a time, each a task of Ray, at most 64.", le=64
    )
    target_queued_tokens: Count = setting(
        8192, "With ray: replicas are added until each has at most this many tokens in its queue on average."
    )
    upscale_seconds: float = setting(
        30.0, "With ray: how long the queue must need more replicas before they are started.", ge=0, le=3600
    )
    downscale_seconds: float = setting(
        600.0, "With ray: how long the queue must need fewer replicas before they are stopped.", ge=0, le=86_400
    )

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.max_replicas < self.min_replicas:
            raise ValueError(
                f"max_replicas is {self.max_replicas}: it must be at least min_replicas, {self.min_replicas}"
            )
        return self
