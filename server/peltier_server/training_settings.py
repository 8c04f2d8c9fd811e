"""The settings of trainings and of their files."""

from peltier_server.settings_group import MIB, Count, SettingsGroup, setting


class TrainingSettings(SettingsGroup):
    """The files of examples that the server accepts, and the worker beside it."""

    worker: bool = setting(False, "Run one training worker beside the server, at the lowest priority.")
    max_file_bytes: Count = setting(64 * MIB, "Maximum bytes of a file of examples.")
    max_file_rows: Count = setting(1_000_000, "Maximum rows of a file of examples.")
