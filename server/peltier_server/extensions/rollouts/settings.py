"""The settings of feedback."""

from peltier_server.settings_group import YEAR_SECONDS, Count, SettingsGroup, setting


class FeedbackSettings(SettingsGroup):
    """What is kept of answers until feedback arrives, during guarded changes of aliases and, if wanted, otherwise."""

    feedback_seconds: float = setting(24 * 3600.0, "How long feedback to an answer is accepted.", gt=0, le=YEAR_SECONDS)
    max_recorded_answers: Count = setting(100_000, "Maximum answers of a tenant that wait for feedback.")
    recorded_answers_per_second: int = setting(
        0, "Answers of a replica that are recorded for feedback each second outside of guarded changes.", ge=0
    )
