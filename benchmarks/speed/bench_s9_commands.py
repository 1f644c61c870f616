"""S9: commands that only print."""

from __future__ import annotations

import subprocess
import sys

from opteq.evaluation.benchmark import Benchmark, Finding, Measurement, Outcome
from opteq.evaluation.timing import best_times

COMMANDS = {"opteq --help": ["--help"], "opteq list models": ["list", "models"]}


def run(seconds, show) -> Outcome:
    outcome = Outcome()
    show("commands")

    def start(arguments: list[str]):
        command = [sys.executable, "-m", "opteq.cli.app", *arguments]
        return lambda: subprocess.run(command, capture_output=True, check=True)

    times = best_times({name: start(a) for name, a in COMMANDS.items()}, seconds=seconds)
    for name, found in times.items():
        outcome.measurements.append(Measurement("start to end", name, 1e3 * found))
        outcome.findings.append(Finding(f"seconds of {name}", found, at_most=0.5))
    return outcome


BENCHMARK = Benchmark(
    "s9", "Commands that only print", "Whole processes, the interpreter's start included.", run
)
