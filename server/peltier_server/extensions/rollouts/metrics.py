"""The metrics of guarded changes and feedback."""

from peltier_server.metrics.metrics import Metrics


class RolloutMetrics:
    """What this replica has decided, shadowed and been told."""

    def __init__(self, metrics: Metrics) -> None:
        self.decisions = metrics.counter(
            "peltier_rollouts_total", "Guarded changes that this replica decided: promoted or rolled_back", "result"
        )
        self.shadows = metrics.counter(
            "peltier_shadows_total", "Requests for shadowing candidates: computed, failed, or dropped", "result"
        )
        self.feedback = metrics.counter("peltier_feedback_total", "Feedback to answers: right or wrong", "result")
        self.judge_version = metrics.versions.counter(
            "peltier_adapter_feedback_total",
            "Feedback that this replica took to answers of a version: right or wrong",
            "result",
        )
