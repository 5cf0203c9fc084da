"""Rows of a table for a notebook: a list of dictionaries that can become a pandas frame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace.client.transport import Json
from headrace.errors import Unavailable

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingImports, reportMissingModuleSource]


class Rows(list[Json]):
    """Rows in order, each a dictionary from column to value.

    >>> rows = Rows([{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.5}])
    >>> rows.column("loss")
    [2.0, 1.5]
    """

    def column(self, name: str) -> list[Any]:
        """The values of one column, None where a row has none."""
        return [row.get(name) for row in self]

    def frame(self) -> pandas.DataFrame:
        """The rows as a pandas frame; raises Unavailable where pandas is not installed."""
        try:
            import pandas  # pyright: ignore[reportMissingImports, reportMissingModuleSource]
        except ImportError as error:
            raise Unavailable(
                "rows.frame() needs pandas, which is not installed: pip install pandas"
            ) from error
        return pandas.DataFrame(list(self))


def by_step(points: Iterable[Json]) -> Rows:
    """One row per step, one column per metric.

    >>> by_step([{"step": 1, "name": "loss", "value": 2.0}, {"step": 1, "name": "lr", "value": 0.1}])
    [{'step': 1, 'loss': 2.0, 'lr': 0.1}]
    """
    rows: dict[int, Json] = {}
    for point in points:
        rows.setdefault(point["step"], {"step": point["step"]})[point["name"]] = point["value"]
    return Rows(rows[step] for step in sorted(rows))
