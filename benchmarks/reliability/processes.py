"""Two processes (DDP over gloo) against one with the same global batch: losses must agree.

python benchmarks/reliability/processes.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from opteq.training.folder import RunFolder

SETTINGS = (
    "train.epochs=2",
    "data.limit_train=160",
    "data.limit_test=64",
    "augment.crop=0",
    "train.batch_size=32",
    "train.precision=64-true",
)


def records(recipe: str, devices: int, folder: Path) -> list[dict[str, dict[str, float]]]:
    command = [sys.executable, "-m", "opteq.cli.app", "train", recipe, "--run-dir", str(folder)]
    command += ["--accelerator", "cpu", "--devices", str(devices), "--quiet"]
    for setting in SETTINGS:
        command += ["--set", setting]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return RunFolder(folder).metrics()


def main() -> int:
    failures = 0
    names = sys.argv[1:] or ["geq_digits", "mopteq_digits", "opteq_digits", "resnet_digits"]
    for recipe in names:
        with tempfile.TemporaryDirectory() as name:
            one, two = (records(recipe, n, Path(name) / str(n)) for n in (1, 2))
        worst = max(
            abs(a[part]["loss"] - b[part]["loss"])
            for a, b in zip(one, two, strict=True)
            for part in ("train", "test")
        )
        print(f"{recipe}: largest difference of losses {worst:.1e}")
        failures += worst > 1e-5
    return failures


if __name__ == "__main__":
    raise SystemExit(main())
