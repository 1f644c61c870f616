"""What an evaluation found, to be printed, shown in a notebook or kept."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opteq.evaluation.calibration import Reliability
from opteq.exhibits import Picture, Table

# Figures as they are shown: what they are called and, where it is not a plain number, the unit.
_SHOWN = {
    "accuracy": ("accuracy", "%"),
    "top5": ("accuracy, five guesses", "%"),
    "mean_iou": ("mean IoU", "%"),
    "mean_accuracy": ("accuracy, mean over classes", "%"),
    "psnr": ("PSNR", " dB"),
    "ssim": ("SSIM", ""),
    "noisy_psnr": ("PSNR before", " dB"),
    "steps": ("solver steps", ""),
    "residual": ("relative residual", ""),
    "unconverged": ("not converged", "%"),
    "feedback": ("feedback", "%"),
    "feedback_rescaled": ("feedback after rescaling", "%"),
    "calibration_error": ("calibration error", "%"),
    "largest_calibration_error": ("largest calibration error", "%"),
    "brier": ("Brier score, 0 to 2", ""),
    "nll_or_known_kl": ("negative log-likelihood", ""),
    "unknown_kl": ("unseen classes: divergence from undecided", ""),
    "detection_auroc": ("unseen classes told from seen ones (AUROC)", "%"),
    "mean_corruption_error": ("error under corruption", "%"),
    "noise_accuracy": ("accuracy, noise", "%"),
    "blur_accuracy": ("accuracy, blur", "%"),
    "weather_accuracy": ("accuracy, weather", "%"),
    "digital_accuracy": ("accuracy, digital corruptions", "%"),
    "adaptive_accuracy": ("accuracy, adaptive", "%"),
    "adaptive_steps": ("solver steps, adaptive", ""),
    "adaptive_decided": ("classes proved, adaptive", "%"),
    "calibrated_steps": ("solver steps, adaptive and calibrated", ""),
    "calibrated_changes": ("classes changed by that", ""),
    "local_rate": ("local rate, largest", ""),
    "least_feedback": ("feedback, least", "%"),
}


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
        for key, value in self.figures.items():
            name, unit = _SHOWN.get(key, (key.replace("_", " "), ""))
            text = f"{value:,}" if isinstance(value, int) else f"{value:.4g}{unit}"
            found.append((name, f"{100 * value:.2f}%" if unit == "%" else text))
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
