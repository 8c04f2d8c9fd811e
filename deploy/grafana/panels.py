"""What a panel shows, in the words of these dashboards, and the panel as Grafana's SDK builds it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models

_DATASOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_COLUMNS = 24
_COLORS = ("green", "orange", "red")
_BUILDERS = {"lines": timeseries.Panel, "number": stat.Panel, "bars": bargauge.Panel}

AnyPanel = timeseries.Panel | stat.Panel | bargauge.Panel


@dataclass(frozen=True)
class Query:
    """An expression of PromQL and the legend of its series."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel. Values from each of `levels` on are orange, then red; without them all are green. `width` is in
    columns of 24."""

    title: str
    text: str
    unit: str
    queries: Sequence[Query]
    kind: Literal["lines", "number", "bars"] = "lines"
    levels: Sequence[float] = ()
    width: int = 8
    stacked: bool = False
    # A share has a maximum of 1.
    maximum: float | None = None

    def build(self) -> AnyPanel:
        """The panel as the SDK builds it."""
        panel: AnyPanel = _BUILDERS[self.kind]()
        panel = panel.title(self.title).description(self.text).datasource(_DATASOURCE).unit(self.unit)
        panel = panel.span(self.width).height(4 if self.kind == "number" else 8)
        panel = panel.min(0).thresholds(_thresholds(self.levels))
        for letter, query in zip("ABC", self.queries, strict=False):
            panel.with_target(self._target(query).ref_id(letter))
        if self.maximum is not None:
            panel.max(self.maximum)
        if isinstance(panel, timeseries.Panel):
            self._draw_lines(panel)
        elif isinstance(panel, stat.Panel):
            panel.graph_mode(shapes.BigValueGraphMode.AREA)
        else:
            panel.display_mode(shapes.BarGaugeDisplayMode.GRADIENT).orientation(shapes.VizOrientation.HORIZONTAL)
        return panel

    def _target(self, query: Query) -> prometheus.Dataquery:
        target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend or "__auto")
        return target.range() if self.kind == "lines" else target.instant()

    def _draw_lines(self, panel: timeseries.Panel) -> None:
        legend = common.VizLegendOptions().show_legend(True).display_mode(shapes.LegendDisplayMode.LIST)
        panel.legend(legend.placement(shapes.LegendPlacement.BOTTOM))
        panel.tooltip(common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI))
        panel.fill_opacity(30 if self.stacked else 5).show_points(shapes.VisibilityMode.NEVER)
        if self.stacked:
            panel.stacking(common.StackingConfig().mode(shapes.StackingMode.NORMAL))
        if self.levels:
            panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(shapes.GraphTresholdsStyleMode.DASHED))


@dataclass(frozen=True)
class Section:
    """A row of panels under a title."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Board:
    """One dashboard; `labels` are those that the visitor can choose values of, beside the server."""

    name: str
    text: str
    sections: Sequence[Section]
    labels: Sequence[tuple[str, str]] = ()

    def build(self) -> models.Dashboard:
        """The dashboard as the SDK builds it."""
        board = dashboard.Dashboard(f"Peltier: {self.name}").uid(f"peltier-{self.name}").description(self.text)
        board.tags(["peltier"]).refresh("10s").time("now-1h", "now").timezone("browser").tooltip(
            models.DashboardCursorSync.CROSSHAIR
        )
        board.link(_others())
        board.with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        for label, metric in (("instance", 'up{job="peltier"}'), *self.labels):
            board.with_variable(_choice(label, metric))
        ids = count(1)
        for section in self.sections:
            board.with_row(dashboard.Row(section.title).id(next(ids)))
            for panel in section.panels:
                board.with_panel(panel.build().id(next(ids)))
        return board.build()


def _thresholds(levels: Sequence[float]) -> dashboard.ThresholdsConfig:
    steps = [models.Threshold(value, color) for value, color in zip((None, *levels), _COLORS, strict=False)]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def _choice(label: str, metric: str) -> dashboard.QueryVariable:
    choice = dashboard.QueryVariable(label).label(label.capitalize()).datasource(_DATASOURCE)
    choice.query(f"label_values({metric}, {label})").refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
    everything = models.VariableOption(selected=True, text="All", value="$__all")
    return choice.multi(True).include_all(True).all_value(".*").current(everything)


def _others() -> dashboard.DashboardLink:
    link = dashboard.DashboardLink("Peltier").type(models.DashboardLinkType.DASHBOARDS).tags(["peltier"])
    return link.as_dropdown(True).keep_time(True).include_vars(True)
