"""Every example runs, at a smaller size, and draws its picture."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SMALLER = {
    "certified_digits.py": ["--images", "2", "--rounds", "2"],
    "restore_photograph.py": ["--side", "32"],
}


def test_every_example_is_run():
    assert set(SMALLER) == {path.name for path in EXAMPLES.glob("*.py")}


@pytest.mark.parametrize("name", SMALLER)
def test_example(name, tmp_path):
    picture = tmp_path / "picture.png"
    words = [sys.executable, str(EXAMPLES / name), "--output", str(picture), *SMALLER[name]]
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    done = subprocess.run(words, capture_output=True, text=True, env=settings, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "not converged" not in done.stdout
    assert picture.stat().st_size > 10_000
