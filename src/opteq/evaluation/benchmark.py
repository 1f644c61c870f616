"""What a benchmark is: measurements of contenders, and what they say about a target."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from opteq.errors import DataError, OptionError, nearest


@dataclass(frozen=True)
class Measurement:
    """One contender in one setting."""

    setting: str
    contender: str
    milliseconds: float | None = None
    evaluations: int | None = None
    residual: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Finding:
    """A number against its target; `at_most` or `at_least` says on which side it should be."""

    claim: str
    value: float
    at_most: float | None = None
    at_least: float | None = None

    @property
    def met(self) -> bool | None:
        if self.at_most is not None:
            return self.value <= self.at_most
        return self.value >= self.at_least if self.at_least is not None else None

    @property
    def target(self) -> str:
        if self.at_most is not None:
            return f"at most {self.at_most:g}"
        return f"at least {self.at_least:g}" if self.at_least is not None else "reported"


@dataclass
class Outcome:
    """What a benchmark found. `curves`: (axis, contender) -> points, for benchmarks of growth."""

    measurements: list[Measurement] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    curves: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Benchmark:
    """One question about speed. `run` takes the seconds it may spend on each setting, and a
    function that shows progress."""

    id: str
    title: str
    protocol: str
    run: Callable[[float, Callable[[str], Any]], Outcome]


def benchmark_folder() -> Path:
    """Where the benchmarks are: beside the sources, or inside the installed package."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "benchmarks", package.parents[1] / "benchmarks"):
        if (folder / "speed").is_dir():
            return folder / "speed"
    raise DataError(
        "The benchmarks are not installed.", "Install opteq from its wheel or from a checkout."
    )


def list_benchmarks() -> dict[str, Path]:
    """Ids and files."""
    files = sorted(benchmark_folder().glob("bench_*.py"))
    return {path.stem.removeprefix("bench_").split("_")[0]: path for path in files}


def load_benchmark(id: str) -> Benchmark:
    """The benchmark with this id."""
    files = list_benchmarks()
    if id.lower() not in files:
        raise OptionError(f"There is no benchmark {id!r}.", nearest(id.lower(), list(files)))
    return _load(files[id.lower()]).BENCHMARK


def _load(path: Path) -> ModuleType:
    # Benchmarks share helpers that lie beside them.
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
