"""The settings of trainings."""

from peltier_server.settings_group import SettingsGroup, setting


class TrainingSettings(SettingsGroup):
    """The workers beside the server."""

    worker: bool = setting(
        False,
        "Run one training worker beside the server, at the lowest priority; with ray up to max_workers on the cluster.",
    )
