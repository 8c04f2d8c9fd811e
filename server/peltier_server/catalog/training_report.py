"""Checks the report of an upload."""

from peltier_adapters.errors import sentences
from peltier_client.errors import InvalidInput
from peltier_client.protocol import MAX_REPORT_BYTES, TrainingReport
from pydantic import ValidationError


def check_report(data: bytes, digest: str) -> str:
    """The report as it is stored: its known keys, as JSON. `digest` is that of the artifact.

    Raises `InvalidInput` with every reason if it is too large, no report, or the report of another artifact.
    """
    if len(data) > MAX_REPORT_BYTES:
        raise InvalidInput(f"the report has more than {MAX_REPORT_BYTES} bytes, which is the maximum")
    try:
        report = TrainingReport.model_validate_json(data)
    except ValidationError as error:
        reasons = sentences(error)
        raise InvalidInput(f"the report is refused: {reasons[0]}", reasons) from error
    if report.artifact.digest != digest:
        raise InvalidInput(
            f"the report is of the artifact {report.artifact.digest}, and the uploaded artifact is {digest}"
        )
    return report.model_dump_json()
