"""The report of a training on the wire: what `peltier train` writes to NAME.report.json, as far as servers keep it.

A report is data: no part of it is markup. Servers drop the keys that are not named here, so that a newer
`peltier train` may add some.
"""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, FiniteFloat, model_validator

from peltier_client.protocol.adapters import Digest
from peltier_client.protocol.wire import ResponseModel

# Larger than the report of a task with five hundred labels, whose confusion matrix is the largest part.
MAX_REPORT_BYTES = 1024 * 1024

# Null where the value does not exist, or was not finite.
Number = FiniteFloat | None
Value = TypeVar("Value")
# Bounds of what a page draws: names, rows, labels and points.
Named = Annotated[dict[str, Value], Field(max_length=256)]
Rows = Annotated[list[Value], Field(max_length=256)]
Labels = Annotated[list[Value], Field(max_length=4096)]
Points = Annotated[list[Value], Field(max_length=20_000)]


class ReportArtifact(ResponseModel):
    """The artifact that the training wrote."""

    file: str
    digest: Digest
    bytes: int


class ReportBackbone(ResponseModel):
    """The backbone of the training."""

    name: str
    family: str
    num_parameters: int | None = None


class ReportTask(ResponseModel):
    """The trained task."""

    type: str
    labels: Labels[str] = Field(default_factory=list)


class ReportTraining(ResponseModel):
    """The data and settings of the training, with the names that `peltier train` gives them."""

    data: Named[Any] = Field(default_factory=dict)
    hyperparameters: Named[Any] = Field(default_factory=dict)


class ReportMajority(ResponseModel):
    """The best constant answer, the share of rows that it is right for, and its metrics."""

    answer: str
    share: Number = None
    metric: str
    metrics: Named[Number]


class ReportPoint(ResponseModel):
    """A value after `step` steps."""

    step: int
    epoch: FiniteFloat
    value: Number


class ReportCurves(ResponseModel):
    """Values during the training by name, and the step that was kept."""

    training: Named[Points[ReportPoint]] = Field(default_factory=dict)
    validation: Named[Points[ReportPoint]] = Field(default_factory=dict)
    best_step: int | None = None


class ReportCount(ResponseModel):
    """Parameters of a part, and their percentage of the backbone's."""

    part: str
    parameters: int
    percent: FiniteFloat


class ReportParameters(ResponseModel):
    """The parameters of the backbone, of each part, of the artifact, and those that were trained."""

    backbone: int
    parts: Rows[ReportCount] = Field(default_factory=list)
    total: ReportCount
    trained: ReportCount


class ReportCost(ResponseModel):
    """Time in seconds, and the peaks of memory in bytes."""

    device: str
    dtype: str
    threads: int | None = None
    seconds_per_epoch: Number
    training_seconds: FiniteFloat
    total_seconds: FiniteFloat
    memory_bytes: int
    device_memory_bytes: int | None


class ReportConfusion(ResponseModel):
    """`matrix[i][j]` rows of label i were answered with label j."""

    labels: Labels[str]
    matrix: Labels[Labels[int]]

    @model_validator(mode="after")
    def _require_square(self) -> "ReportConfusion":
        sizes = {len(self.matrix), *map(len, self.matrix)}
        if self.labels and sizes != {len(self.labels)}:
            raise ValueError(f"the matrix must have {len(self.labels)} rows and columns, as there are labels")
        return self


class ReportLabel(ResponseModel):
    """How well one label is found."""

    label: str
    rows: int
    precision: Number
    recall: Number
    f1: Number


class ReportMistake(ResponseModel):
    """A row whose answer differs from its label."""

    input: list[str]
    label: str
    answer: str
    score: Number


class ReportResiduals(ResponseModel):
    """Answers minus labels, and some rows with both."""

    mean: Number
    sd: Number
    gold: Points[Number]
    found: Points[Number]


class ReportSample(ResponseModel):
    """An input, its references and the generated text."""

    input: str | list[str]
    references: Rows[str]
    text: str


class ReportGates(ResponseModel):
    """The mean gate of each part over `rows` rows, by block; null for a block without the part."""

    rows: int
    means: Named[Labels[Number]]


class ReportSpread(ResponseModel):
    """A mean and its standard deviation."""

    mean: Number
    sd: Number = None


class ReportWay(ResponseModel):
    """The metrics of one way to use the experts."""

    name: str
    metrics: Named[ReportSpread]


class ReportMerging(ResponseModel):
    """Merged experts beside other ways to use them."""

    ways: Rows[ReportWay]


class TrainingReport(ResponseModel):
    """The report of the training that wrote an artifact. Sections of other task types and presets are absent."""

    format_version: Literal[1]
    name: str
    preset: str
    artifact: ReportArtifact
    backbone: ReportBackbone
    task: ReportTask
    training: ReportTraining
    metrics: Named[Number]
    metric: str
    warnings: Rows[str] = Field(default_factory=list)
    majority: ReportMajority | None = None
    resolved: Named[Any] | None = None
    curves: ReportCurves
    parameters: ReportParameters
    cost: ReportCost
    confusion: ReportConfusion | None = None
    label_scores: Labels[ReportLabel] | None = None
    mistakes: Rows[ReportMistake] | None = None
    residuals: ReportResiduals | None = None
    samples: Rows[ReportSample] | None = None
    gates: ReportGates | None = None
    merging: ReportMerging | None = None


class VersionReport(ResponseModel):
    """The report of a version's training; null if none was uploaded with it."""

    report: TrainingReport | None
