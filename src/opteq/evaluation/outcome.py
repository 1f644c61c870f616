"""What an evaluation found, to be printed, shown in a notebook or kept."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opteq.evaluation.calibration import Reliability
from opteq.exhibits import Picture, Table

_PERCENT = (
    "accuracy",
    "top5",
    "mean_iou",
    "mean_accuracy",
    "unconverged",
    "feedback",
    "feedback_rescaled",
    "adaptive_accuracy",
    "adaptive_decided",
)


@dataclass(frozen=True)
class Evaluation:
    """Figures with the protocol they were obtained by."""

    protocol: str
    figures: dict[str, Any]
    confusion: list[list[int]]
    classes: tuple[str, ...]
    failures: dict[str, int]
    reliability: Reliability | None = None
    tables: list[Table] = field(default_factory=list)
    pictures: dict[str, Picture] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    """Pictures that were written."""

    def lines(self) -> list[tuple[str, str]]:
        """Name and value of each figure, to be printed."""
        found = []
        for name, value in self.figures.items():
            percent = name in _PERCENT
            text = f"{100 * value:.2f}%" if percent else f"{value:.4g}"
            found.append((name.replace("_", " "), f"{value:,}" if name == "images" else text))
        found += [(f"  {cause.replace('_', ' ')}", str(n)) for cause, n in self.failures.items()]
        return found

    def __str__(self) -> str:
        width = max((len(name) for name, _ in self.lines()), default=0)
        rows = [f"{name:{width}}  {value}" for name, value in self.lines()]
        tables = [f"\n{table.title}\n{table.markdown()}" for table in self.tables]
        return "\n".join([self.protocol, *rows, *tables])

    def _repr_markdown_(self) -> str:
        figures = Table("", ("figure", "value"), [list(line) for line in self.lines()])
        tables = [f"**{table.title}**\n\n{table.markdown()}" for table in self.tables]
        return "\n\n".join([self.protocol, figures.markdown(), *tables])

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "protocol": self.protocol,
            **{name: _finite(value) for name, value in self.figures.items()},
            "failures": self.failures,
            "tables": [
                {"title": t.title, "header": list(t.header), "rows": t.rows} for t in self.tables
            ],
            "classes": list(self.classes),
            "confusion": self.confusion,
        }


def _finite(value: Any) -> Any:
    """JSON has no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
