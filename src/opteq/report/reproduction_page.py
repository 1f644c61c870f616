"""A reproduced experiment as CSV, pictures, and a page in Markdown and HTML."""

from __future__ import annotations

from datetime import date

from opteq.environment import environment
from opteq.files import make_folder, write_atomically
from opteq.papers.catalogue import TITLES
from opteq.papers.engine.reproduction import Reproduction
from opteq.report.page import embedded, render
from opteq.report.pictures import write_picture


def write_reproduction(found: Reproduction, command: str) -> None:
    """OUTPUT/ID.md and ID.html, and beside them tables/ID.csv and pictures/ID-*.png; of selected
    rows ID-PATTERN.md and so on."""
    plan = found.plan
    name = plan.stem
    tables = plan.output / "tables"
    make_folder(tables)
    write_atomically(tables / f"{name}.csv", found.table.csv())
    pictures = {}
    for key, picture in found.pictures.items():
        pictures[key] = f"pictures/{name}-{key}.png"
        write_picture(picture, plan.output / pictures[key])
    write_atomically(found.page, (markdown(found, command, pictures) + "\n").encode())
    render(
        "reproduce.html",
        found.report,
        id=name,
        title=f"{name}: {TITLES[plan.id]}",
        protocol=f"{found.protocol}; {_versions()}.",
        header=found.table.header,
        rows=found.table.rows,
        left_out="; ".join(found.left_out),
        note=found.note,
        pictures=[
            (key, embedded((plan.output / file).read_bytes())) for key, file in pictures.items()
        ],
        claims=found.claims().rows,
        command=command,
    )


def markdown(found: Reproduction, command: str, pictures: dict[str, str]) -> str:
    """The page of an experiment."""
    lines = [
        f"# {found.plan.stem}: {TITLES[found.plan.id]}",
        "",
        f"    {command}",
        "",
        f"{found.protocol}; {_versions()}.",
        "",
        found.table.markdown(),
        "",
    ]
    if found.left_out:
        lines += [f"Rows that are not here: {'; '.join(found.left_out)}.", ""]
    if found.note:
        lines += [found.note, ""]
    lines += [f"![{key}]({file})\n" for key, file in pictures.items()]
    if found.verdicts:
        lines += [found.claims().markdown(), ""]
    return "\n".join(lines).rstrip()


def _versions() -> str:
    facts = environment()
    return f"opteq {facts['opteq']}, torch {facts['torch']}, {date.today().isoformat()}"
