# SPDX-License-Identifier: Apache-2.0
"""The kinds of panel that our dashboards are made of: what every one of a kind has in common."""

from collections.abc import Sequence
from typing import Final, Literal

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    grafanapyroscope,
    prometheus,
    table,
    text,
    timeseries,
)
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import text as text_models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

PROMETHEUS: Final = models.DataSourceRef(type_val="prometheus", uid="${prom_ds}")
PYROSCOPE: Final = models.DataSourceRef(type_val="grafana-pyroscope-datasource", uid="${pyroscope_ds}")

FULL: Final = 24
HALF: Final = 12

Unit = Literal["bytes", "Bps", "short", "ops"]


def query(expression: str, legend: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().datasource(PROMETHEUS).expr(expression).legend_format(legend).ref_id("A")


def series(title: str, why: str, unit: Unit, *targets: prometheus.Dataquery) -> timeseries.Panel:
    """Values over time, stacked by nothing: two processes of a node can be compared at a glance."""
    panel = timeseries.Panel().title(title).description(why).datasource(PROMETHEUS).unit(unit)
    panel = panel.span(HALF).height(8).fill_opacity(10).show_points(common_models.VisibilityMode.NEVER)
    legend = common.VizLegendOptions().display_mode(common_models.LegendDisplayMode.TABLE)
    panel = panel.legend(
        legend.placement(common_models.LegendPlacement.BOTTOM).show_legend(True).calcs(["lastNotNull", "max"])
    )
    for index, target in enumerate(targets):
        panel = panel.with_target(target.ref_id(chr(ord("A") + index)))
    return panel


def ranking(title: str, why: str, unit: Unit, expression: str) -> table.Panel:
    """The largest values now, one row each."""
    instant = query(expression, "").instant().format(PromQueryFormat.TABLE)
    return (
        table.Panel()
        .title(title)
        .description(why)
        .datasource(PROMETHEUS)
        .span(HALF)
        .height(8)
        .show_header(True)
        .with_target(instant)
        .unit(unit)
        .with_transformation(
            models.DataTransformerConfig(id_val="organize", options={"excludeByName": {"Time": True}})
        )
    )


def flame_graph(title: str, why: str, profile_type: str, selector: str) -> dashboard.Panel:
    profile = (
        grafanapyroscope.Dataquery()
        .datasource(PYROSCOPE)
        .profile_type_id(profile_type)
        .label_selector(selector)
        .query_type("profile")
        .group_by([])
        .ref_id("A")
    )
    panel = dashboard.Panel().type("flamegraph").title(title).description(why).datasource(PYROSCOPE)
    return panel.options({}).with_target(profile).span(FULL).height(16)


def note(markdown: str, *, height: int) -> text.Panel:
    panel = text.Panel().mode(text_models.TextMode.MARKDOWN).content(markdown)
    return panel.transparent(True).span(FULL).height(height)


def data_source(name: str, label: str, kind: str, uid: str) -> dashboard.DatasourceVariable:
    """A variable that holds a data source, ours unless another is chosen."""
    chosen = models.VariableOption(selected=True, text=uid, value=uid)
    return dashboard.DatasourceVariable(name).label(label).type(kind).current(chosen)


def label_values(name: str, label: str, expression: str) -> dashboard.QueryVariable:
    """A variable that holds values of a metric's label, all of them unless some are chosen."""
    everything = models.VariableOption(selected=True, text="All", value="$__all")
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(PROMETHEUS)
        .query(expression)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(everything)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )


def choice(name: str, label: str, values: Sequence[str], default: str) -> dashboard.CustomVariable:
    """A variable that holds one of some fixed values, never several: what it selects may be added up."""
    options = [models.VariableOption(selected=value == default, text=value, value=value) for value in values]
    (chosen,) = (option for option in options if option.selected)
    return (
        dashboard.CustomVariable(name)
        .label(label)
        .values(",".join(values))
        .options(options)
        .current(chosen)
        .multi(False)
        .include_all(False)
    )
