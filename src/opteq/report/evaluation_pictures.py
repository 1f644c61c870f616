"""The pictures of an evaluation."""

from __future__ import annotations

from pathlib import Path

from opteq.evaluation.outcome import Evaluation
from opteq.report.calibration import write_reliability
from opteq.report.pictures import write_picture


def write_pictures(found: Evaluation, folder: Path) -> list[Path]:
    """NAME.png for each picture, and reliability.png; returns the files."""
    files = []
    if found.reliability is not None:
        files.append(folder / "reliability.png")
        write_reliability(found.reliability, files[-1])
    for name, picture in found.pictures.items():
        files.append(folder / f"{name}.png")
        write_picture(picture, files[-1])
    return files
