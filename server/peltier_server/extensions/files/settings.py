"""The settings of files, which are among those of trainings."""

from peltier_server.settings_group import MIB, Count, SettingsGroup, setting


class FileSettings(SettingsGroup):
    """The files that the server accepts."""

    max_file_bytes: Count = setting(64 * MIB, "Maximum bytes of a file of examples.")
    max_file_rows: Count = setting(1_000_000, "Maximum rows of a file of examples.")
