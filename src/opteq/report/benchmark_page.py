"""Tables and pictures of benchmarks."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from opteq.environment import environment
from opteq.errors import counted
from opteq.evaluation.benchmark import Benchmark, Finding, Outcome
from opteq.exhibits import Table
from opteq.files import make_folder, write_atomically
from opteq.report.page import ACCENT, MUTED, SECOND, THIRD, logarithmic, new_figure, png

_COLOURS = (ACCENT, SECOND, THIRD, MUTED, "#7d5ba6", "#b8c0c8")


def outcome_text(benchmark: Benchmark, outcome: Outcome) -> str:
    """As Markdown: the measurements, and what they say about the targets."""
    lines = [f"## {benchmark.id}: {benchmark.title}", "", benchmark.protocol, ""]
    lines += [_measurements(outcome).markdown(), "", _findings(outcome.findings).markdown(), ""]
    return "\n".join(lines)


def write_outcome(benchmark: Benchmark, outcome: Outcome, output: Path) -> None:
    """ID.csv and ID.png."""
    make_folder(output)
    content = b"\n".join([_measurements(outcome).csv(), _findings(outcome.findings).csv()])
    write_atomically(output / f"{benchmark.id}.csv", content)
    figure = _curves(outcome) if outcome.curves else _bars(outcome)
    figure.suptitle(benchmark.title, fontsize=11)
    write_atomically(output / f"{benchmark.id}.png", png(figure))


def write_summary(done: list[tuple[Benchmark, Outcome]], output: Path) -> None:
    """table.md: every benchmark of this call, with the command and the machine."""
    found = environment()
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {_processor()}"
    head = [
        "# Speed",
        "",
        f"`{found['command']}`: opteq {found['opteq']}, torch {found['torch']}, "
        f"{counted(found['threads'], 'thread')} of {machine}. Contenders take turns; each one's "
        "best time counts.",
        "",
    ]
    text = "\n".join(head) + "\n".join(outcome_text(*pair) for pair in done)
    write_atomically(output / "table.md", text.encode())


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown processor"


def _measurements(outcome: Outcome) -> Table:
    rows = [
        (
            m.setting,
            m.contender,
            "" if m.milliseconds is None else f"{m.milliseconds:.4g}",
            "" if m.evaluations is None else str(m.evaluations),
            "" if m.residual is None else f"{m.residual:.1e}",
            m.note,
        )
        for m in outcome.measurements
    ]
    return Table("", ("setting", "contender", "ms", "evaluations", "residual", "note"), rows)


def _findings(findings: list[Finding]) -> Table:
    words = {True: "met", False: "MISSED", None: ""}
    rows = [(f.claim, f"{f.value:.3g}", f.target, words[f.met]) for f in findings]
    return Table("", ("finding", "value", "target", "met"), rows)


def _bars(outcome: Outcome) -> Any:
    timed = [m for m in outcome.measurements if m.milliseconds is not None]
    settings = list(dict.fromkeys(m.setting for m in timed))
    names = list(dict.fromkeys(m.contender for m in timed))
    figure, axes = new_figure(8, 0.7 + 0.28 * len(timed) + 0.25 * len(settings))
    axis = axes[0, 0]
    place, ticks = 0.0, []
    for setting in settings:
        here = [m for m in timed if m.setting == setting]
        for m in here:
            colour = _COLOURS[names.index(m.contender) % len(_COLOURS)]
            axis.barh(place, m.milliseconds, color=colour, height=0.8)
            count = "" if m.evaluations is None else f", {m.evaluations} evaluations"
            spent = m.milliseconds or 0.0
            text = f" {spent:,.0f} ms{count}" if spent >= 100 else f" {spent:.3g} ms{count}"
            axis.text(spent, place, text, va="center", size=7)
            ticks.append((place, m.contender))
            place += 1
        axis.text(0, place - len(here) - 0.75, setting, size=8, weight="bold", va="bottom")
        place += 0.9
    axis.set_yticks([p for p, _ in ticks], [name for _, name in ticks], fontsize=7)
    axis.invert_yaxis()
    axis.set_ylim(place - 0.8, -1.4)
    axis.margins(x=0.25)
    axis.set_xlabel("milliseconds")
    axis.grid(visible=False, axis="y")
    return figure


def _curves(outcome: Outcome) -> Any:
    kinds = list(dict.fromkeys(axis for axis, _ in outcome.curves))
    figure, axes = new_figure(3.0 * len(kinds) + 0.6, 3.0, columns=len(kinds))
    for axis, kind in zip(axes[0], kinds, strict=True):
        here = {name: points for (k, name), points in outcome.curves.items() if k == kind}
        for i, (name, points) in enumerate(here.items()):
            axis.plot(*zip(*points, strict=True), "o-", color=_COLOURS[i], label=name, markersize=3)
        axis.set_xlabel(kind)
        axis.tick_params(labelsize=7)
        places = sorted({x for points in here.values() for x, _ in points})
        logarithmic(axis.xaxis)
        axis.set_xticks(places, [f"{x:.4g}" for x in places])
        logarithmic(axis.yaxis)
        if len(here) > 1:
            axis.legend(fontsize=7)
        else:
            axis.set_ylabel(next(iter(here)))
    return figure
