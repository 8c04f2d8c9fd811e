"""The settings of feedback."""

from peltier_server.settings import AnswerSettings
from peltier_server.settings_group import Count, setting


class FeedbackSettings(AnswerSettings):
    """What is kept of answers until feedback arrives, during guarded changes of aliases and, if wanted, otherwise."""

    max_recorded_answers: Count = setting(100_000, "Maximum answers of a tenant that wait for feedback.")
    recorded_answers_per_second: int = setting(
        0, "Answers of a replica that are recorded for feedback each second outside of guarded changes.", ge=0
    )
