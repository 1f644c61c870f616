"""Pages for readers: every link leads somewhere, every picture and table is shown."""

import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from typer.main import get_command

from opteq.cli.app import app
from opteq.papers.catalogue import TITLES
from opteq.training.recipe_files import load_recipe
from opteq.training.summaries import list_recipes

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RESULTS = ROOT / "docs" / "results"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_page_of_results_is_in_the_index_and_every_picture_on_a_page():
    index = (RESULTS / "README.md").read_text(encoding="utf-8")
    pages = {path.name for path in RESULTS.glob("*.md")} - {"README.md"}
    assert len(pages) > 30
    assert not [name for name in pages if f"({name})" not in index]
    shown = " ".join(path.read_text(encoding="utf-8") for path in RESULTS.glob("*.md"))
    pictures = [path.name for path in (RESULTS / "pictures").iterdir()]
    assert not [name for name in pictures if f"pictures/{name})" not in shown]


def test_the_reference_is_what_the_code_says():
    generate = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    for name, text in generate["pages"]().items():
        written = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
        assert written == text, f"run: python docs/generate.py ({name})"
        assert " at 0x" not in text
    assert "`extends: NAME`" in generate["pages"]()["recipes.md"]


def test_the_site_is_built_without_complaints(tmp_path):
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copyfile(ROOT / "zensical.toml", tmp_path / "zensical.toml")
    zensical = Path(sys.executable).with_name("zensical")
    done = subprocess.run([zensical, "build"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "No issues found" in done.stdout + done.stderr
    pages = {path.parent.name for path in (tmp_path / "site").glob("*/index.html")}
    assert pages >= {"tour", "own", "choose", "pytorch", "solving", "theory", "speed", "results"}
    assert "Write down the problem" in (tmp_path / "site" / "index.html").read_text()


def commands() -> list[str]:
    """Every command on the pages, as one line each."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for line in text.splitlines():
            words = re.match(r"(?:    )?(?:srun |torchrun .*-m )?(opteq [a-z-].*)$", line)
            if words:
                found.append(re.split(r" #| > ", words[1])[0].strip())
    return sorted(set(found))


@pytest.mark.parametrize("command", commands())
def test_commands_are_understood(command):
    """Every option exists and takes its value; recipes and models are there."""
    name, *words = shlex.split(command)[1:]
    context = cast(Any, get_command(app)).commands[name].make_context(name, words)
    if name == "train" and context.params["recipe"] is not None:
        assert context.params["recipe"] in list_recipes()
        own = [key for key in context.params["overrides"] or () if "my_model.py" not in key]
        load_recipe(context.params["recipe"], own)
    if name == "reproduce":
        assert set(context.params["ids"] or ()) <= set(TITLES)
