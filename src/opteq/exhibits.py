"""Tables and pictures to be shown, as plain data.

`opteq.report.pictures` draws them; nothing here needs a drawing library.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Table:
    """Cells ready to be printed. In a notebook it shows as a table."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """The table in GitHub's Markdown, aligned for people who read the source.

        >>> print(Table("", ("name", "value"), [["a", "1"]]).markdown())
        | name | value |
        |------|-------|
        | a    | 1     |
        """
        cells = [[c.replace("|", "\\|") for c in row] for row in (self.header, *self.rows)]
        padded = _padded(cells)
        lines = [f"| {' | '.join(row)} |" for row in padded]
        lines.insert(1, "|" + "|".join("-" * (len(cell) + 2) for cell in padded[0]) + "|")
        return "\n".join(lines)

    def plain(self) -> str:
        """In columns, for a terminal."""
        lines = ["  ".join(row).rstrip() for row in _padded((self.header, *self.rows))]
        return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])

    def csv(self) -> bytes:
        """For spreadsheets and scripts."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self.header)
        writer.writerows(self.rows)
        return buffer.getvalue().encode()

    def _repr_markdown_(self) -> str:
        return f"{self.title}\n\n{self.markdown()}" if self.title else self.markdown()


def _padded(cells: Sequence[Sequence[str]]) -> list[list[str]]:
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return [[c.ljust(w) for c, w in zip(row, widths, strict=True)] for row in cells]


@dataclass(frozen=True)
class Series:
    """One line: its points, and how far each may be off."""

    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] | None = None
    partner: str | None = None
    """The line it is paired with, whose colour it takes, dashed."""


@dataclass(frozen=True)
class Curves:
    """Lines over a common axis."""

    title: str
    x: str
    y: str
    series: Mapping[str, Series]
    log_x: bool = False
    log_y: bool = False
    names: Sequence[str] = ()
    """Names of x = 1, 2, ...: categories without an order, so points are not joined."""
    most: float | None = None
    """What y cannot exceed: the axis ends there."""


@dataclass(frozen=True)
class Dots:
    """A value for each seed of each contender, with the published value if there is one."""

    title: str
    x: str
    values: Mapping[str, Sequence[float]]
    published: Mapping[str, float]
    most: float | None = None
    """What values cannot exceed: the axis ends there."""


@dataclass(frozen=True)
class HeatMaps:
    """Matrices side by side on one colour scale."""

    title: str
    panels: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Tile:
    """A picture with a caption: grey or RGB in [0, 1], or a map of numbers to be coloured."""

    caption: str
    image: np.ndarray
    coloured: bool = False


@dataclass(frozen=True)
class Tiles:
    """Rows of pictures."""

    title: str
    rows: Sequence[Sequence[Tile]]


Picture = Curves | Dots | HeatMaps | Tiles
