"""The settings of batches."""

from peltier_server.settings_group import MIB, Count, SettingsGroup, setting


class BatchSettings(SettingsGroup):
    """The batches of requests in files that the server accepts."""

    max_batch_lines: Count = setting(50_000, "Maximum requests of a batch.")
    max_batch_result_bytes: Count = setting(
        256 * MIB, "Bytes of a batch's results after which its other requests fail."
    )
