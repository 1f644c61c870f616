"""Every example runs, at a smaller size, and draws its picture."""

import json
import runpy
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SMALLER = {
    "certified_digits.py": ["--images", "2", "--rounds", "2"],
    "gates.py": [],
    "maze.py": ["--epochs", "1", "--sides", "9"],
    "own_problem.py": ["--steps", "20"],
    "spread_labels.py": ["--draws", "1", "--images", "300"],
    "restore_photograph.py": ["--side", "32"],
}


def test_every_example_is_run():
    assert set(SMALLER) == {path.name for path in EXAMPLES.glob("*.py")}


@pytest.mark.parametrize("name", SMALLER)
@pytest.mark.filterwarnings("ignore::opteq.errors.NotConvergedWarning")
def test_example(name, tmp_path, monkeypatch, capsys):
    picture = tmp_path / "picture.png"
    monkeypatch.setattr(sys, "argv", [name, "--output", str(picture), *SMALLER[name]])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    said = capsys.readouterr().out
    assert "not converged" not in said
    assert f"picture: {picture}" in said
    assert picture.stat().st_size > 10_000


def test_the_notebook_runs(monkeypatch):
    """Its cells, in their order, without a notebook around them."""
    notebook = json.loads((EXAMPLES / "tour.ipynb").read_text(encoding="utf-8"))
    shown = ModuleType("IPython.display")
    monkeypatch.setattr(shown, "Image", lambda path: path.stat().st_size, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    names: dict[str, object] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert not cell["outputs"]
            exec("".join(cell["source"]).replace('"epochs": 4', '"steps": 3'), names)
    assert "found" in names
