"""`opteq bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opteq.cli.console import new_console, progress_in_words


def bench(
    ids: Annotated[list[str] | None, typer.Argument(help="Benchmark ids. (default: all)")] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Show the ids and stop.")] = False,
    seconds: Annotated[
        float, typer.Option(help="Time to spend on each setting, but at least five rounds.", min=0)
    ] = 10.0,
    threads: Annotated[int, typer.Option(help="Torch threads.", min=1)] = 1,
    output: Annotated[Path, typer.Option(help="A folder for tables and pictures.")] = Path(
        "runs/bench"
    ),
) -> None:
    """Measure speed and memory beside peers, in one run: contenders take turns, the best time of
    each counts, and every answer is checked for the accuracy requested.

    opteq bench s1
    """
    from opteq.evaluation.benchmark import list_benchmarks, load_benchmark

    console = new_console()
    known = list(list_benchmarks())
    if list_only:
        for name in known:
            console.print(f"{name:8} {load_benchmark(name).title}")
        return
    chosen = [load_benchmark(name) for name in ids or known]

    import torch

    from opteq.report.benchmark_page import outcome_text, write_outcome, write_summary

    torch.set_num_threads(threads)
    done = []
    for benchmark in chosen:
        with progress_in_words() as tell:
            outcome = benchmark.run(seconds, lambda text, b=benchmark: tell(f"{b.id}: {text}"))
        write_outcome(benchmark, outcome, output)
        console.print(outcome_text(benchmark, outcome))
        done.append((benchmark, outcome))
    write_summary(done, output)
    console.print(f"tables and pictures: {output}")
