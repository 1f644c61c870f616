"""How training scales over processes on one machine: images per second with 1, 2 and 4 of them, one
thread each.

    python benchmarks/efficiency.py geq_cifar10_tiny --data-dir DIR --processes 1 2 4

Each process gets a batch of its own of the same size (weak scaling). Epochs take turns over the
numbers of processes, and the fastest of each counts. More processes than cores share them: their
figures tell what sharing costs, not what more cores would gain.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from opteq.training.folder import RunFolder
from opteq.training.recipe_files import load_recipe


def images_per_second(recipe: str, processes: int, options: argparse.Namespace) -> float:
    """The rate of the last of two epochs."""
    batch = processes * options.batch
    settings = {
        "train.epochs": 2,
        "train.schedule.warmup_epochs": 0,
        "train.batch_size": batch,
        "data.limit_train": options.steps * batch,
        "data.limit_test": 64,
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        command = [sys.executable, "-m", "opteq", "train", recipe, "--run-dir", str(folder)]
        command += ["--accelerator", "cpu", "--devices", str(processes), "--quiet"]
        command += ["--data-dir", str(options.data_dir)] if options.data_dir else []
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        return RunFolder(folder).metrics()[-1]["images_per_second"]


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("recipes", nargs="*", default=["geq_digits"])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--batch", type=int, default=50, help="images per process and step")
    parser.add_argument("--steps", type=int, default=20, help="steps of an epoch")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, {options.batch} images per process and step")
    print("| recipe | processes | images per second | of that many times one |")
    print("|---|---|---|---|")
    for recipe in options.recipes:
        load_recipe(recipe)  # refuses what is not there, before anything is run
        rates = dict.fromkeys(options.processes, 0.0)
        for _ in range(options.repeats):
            for count in rates:
                rates[count] = max(rates[count], images_per_second(recipe, count, options))
        one = rates[options.processes[0]] / options.processes[0]
        for count, rate in rates.items():
            share = rate / (count * one)
            print(f"| `{recipe}` | {count} | {rate:,.0f} | {100 * share:.0f}% |", flush=True)


if __name__ == "__main__":
    main()
