"""Tables and figures of the papers, theirs beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opteq.options import one_of
from opteq.papers.engine.plan import Plan, recipes_of
from opteq.papers.engine.reproduction import Reproduction
from opteq.papers.engine.reproduction import reproduce as run_experiment
from opteq.papers.registry import experiment
from opteq.report.reproduction_page import write_reproduction
from opteq.training.progress import Progress, new_console, progress_for
from opteq.workflow.train import RUNS

# Test images of a rehearsal.
_FEW = 2


def reproduce(
    name: str,
    *,
    scale: str = "tiny",
    seeds: int = 1,
    output: str | Path = RUNS / "reproduce",
    data: str | None = None,
    data_dir: str | Path | None = None,
    limit: int | None = None,
    overrides: Sequence[str] = (),
    rehearse: bool = False,
    rows: Sequence[str] = (),
    quiet: bool = False,
    command: str | None = None,
) -> Reproduction:
    """A table or figure of the papers; its page is written to `output`. Results already there are
    reused, so a stopped experiment continues when it is started again. The page names the
    `command` that made it. `rows` are patterns of the rows that are wanted, such as "GEQ*", where
    the whole would take too long; claims about other rows are then left out.

    With `rehearse` everything is run end to end in seconds, to see that it works: models are built
    at full size without memory, then narrowed and trained for two steps on noise of the data's
    shape. Its page goes to `output`/rehearsal.
    """
    plan = planned(
        name,
        scale=scale,
        seeds=seeds,
        output=output,
        data=data,
        data_dir=data_dir,
        limit=limit,
        overrides=overrides,
        rehearse=rehearse,
        rows=rows,
    )
    console = new_console()
    found = run_experiment(
        experiment(name),
        plan,
        announce=(lambda text: None) if quiet else console.print,
        progress=Progress if quiet else lambda: progress_for(console),
    )
    own = f"opteq.reproduce({name!r}, scale={scale!r}, seeds={seeds})"
    write_reproduction(found, own if command is None else command)
    return found


def planned(
    name: str,
    *,
    scale: str,
    seeds: int,
    output: str | Path,
    data: str | None,
    data_dir: str | Path | None,
    limit: int | None,
    overrides: Sequence[str],
    rehearse: bool,
    rows: Sequence[str] = (),
) -> Plan:
    """The plan for an experiment; all its recipes are checked."""
    plan = Plan(
        name,
        "paper" if one_of("scale", scale, ("tiny", "paper")) == "paper" else "tiny",
        seeds,
        Path(output) / "rehearsal" / scale if rehearse else Path(output),
        data,
        None if data_dir is None else Path(data_dir),
        tuple(overrides),
        _FEW if rehearse and limit is None else limit,
        rehearse,
        tuple(rows),
    )
    recipes_of(experiment(name), plan)
    return plan
