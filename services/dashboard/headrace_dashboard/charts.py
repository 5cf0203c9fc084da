"""What a job page can show as charts and figures; `chart_sections` says which. Knows no job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from headrace_dashboard.series import Series

MAX_LINES = 6
"""Lines that a chart of names that the job chose can show apart."""


@dataclass(frozen=True)
class Line:
    """One metric in a chart. `role`: `line`, `low` and `high` (edges of a band), `stack`."""

    name: str
    label: str
    role: str = "line"
    tone: str = "1"
    """Number of the colour, or `good`, `bad`, `warn`, `mute`."""


@dataclass(frozen=True)
class Chart:
    key: str
    title: str
    lines: tuple[Line, ...] = ()
    unit: str = ""
    is_wide: bool = False
    min_points: int = 1
    """Steps below which it is not drawn."""
    hint: str = ""
    """What a reader looks for in it, in one sentence."""
    prefix: str = ""
    suffix: str = ""
    """With these, there is a line per metric between them: names that the task app chose."""

    @property
    def names(self) -> list[str]:
        return [line.name for line in self.lines]

    def for_browser(self) -> dict[str, Any]:
        return asdict(self)

    def of(self, series: Series) -> Chart:
        """With the lines that `series` has: where names are open, those of the largest newest values."""
        if not self.prefix:
            return self
        found = [name for name in series.names() if self._label(name)]
        found.sort(key=lambda name: (-(series.last(name) or 0.0), name))
        lines = (
            Line(name, self._label(name), tone=str(number))
            for number, name in enumerate(sorted(found[:MAX_LINES]), start=1)
        )
        return replace(self, lines=tuple(lines))

    def _label(self, name: str) -> str:
        is_one = name.startswith(self.prefix) and name.endswith(self.suffix)
        return name[len(self.prefix) : len(name) - len(self.suffix)] if is_one else ""


@dataclass(frozen=True)
class Section:
    title: str
    charts: tuple[Chart, ...]


@dataclass(frozen=True)
class Tile:
    """One figure at the top of the page: the newest value of a metric."""

    name: str
    label: str
    style: str = "number"
    """`number` or `percent`."""


def resolved(sections: Iterable[Section], series: Series) -> list[Section]:
    """Sections whose charts have the lines that there are."""
    return [
        replace(section, charts=tuple(chart.of(series) for chart in section.charts)) for section in sections
    ]
