"""Kill a training run again and again, also inside a save, and see that nothing is lost.

    python benchmarks/reliability/kill.py --kills 50

Trains once without interruption, then the same recipe killed (SIGKILL) at random moments and
resumed, and compares: every checkpoint readable, no finished epoch lost, final weights equal bit
for bit. Checkpoints are written after every step, so that many kills fall into a save.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from opteq.training.checkpoint import load_checkpoint

SETTINGS = (
    "train.batch_size=32",
    "data.limit_train=320",
    "data.limit_test=64",
    "train.checkpoint_minutes=1e-9",
    "train.ema=0.9",
    "augment.rand_augment=1",
    "train.solve.tolerance=1e-2",
    "train.solve.final_tolerance=1e-3",
)


def start(folder: Path, epochs: int, *, resume: bool) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "opteq.cli.app", "train"]
    if resume:
        command += ["--resume", "--run-dir", str(folder)]
    else:
        command += ["geq_digits", "--run-dir", str(folder)]
        for setting in (*SETTINGS, f"train.epochs={epochs}"):
            command += ["--set", setting]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def progress(folder: Path) -> tuple[int, int]:
    """Steps and finished epochs in the last checkpoint; raises if it cannot be read."""
    path = folder / "last.safetensors"
    if not path.is_file():
        return 0, 0
    facts = load_checkpoint(path)[1]
    return facts["step"], len(facts["records"])


def _strike(process: subprocess.Popen[bytes], folder: Path, chance: random.Random) -> bool:
    """Kill a run a moment after it has written some checkpoints, or while it starts; False if it
    came to its end before."""
    saves, seen = chance.randint(0, 8), _written(folder)
    deadline = time.monotonic() + (chance.uniform(0, 6) if chance.random() < 0.2 else 600)
    while saves and process.poll() is None and time.monotonic() < deadline:
        now = _written(folder)
        saves, seen = saves - (now != seen), now
        time.sleep(0.002)
    if chance.random() < 0.5:
        # Into the middle of a save: as soon as its temporary file is there.
        while process.poll() is None and not _temporary(folder) and time.monotonic() < deadline:
            pass
    else:
        time.sleep(chance.uniform(0, 0.2))
    if process.poll() is not None:
        return False
    process.kill()
    process.wait()
    return True


def _temporary(folder: Path) -> bool:
    try:
        return any(p.name.startswith(".last.safetensors") for p in folder.iterdir())
    except FileNotFoundError:
        return False


def _written(folder: Path) -> int:
    path = folder / "last.safetensors"
    return path.stat().st_mtime_ns if path.is_file() else 0


def compare(one: Path, other: Path) -> list[str]:
    """What differs between the final checkpoints of two runs, times apart."""
    (a, facts), (b, others) = (load_checkpoint(path / "last.safetensors") for path in (one, other))
    differing = sorted(name for name in a.keys() | b.keys() if not _equal(a, b, name))
    times = ("seconds", "images_per_second")
    for left, right in zip(facts["records"], others["records"], strict=True):
        for key in left.keys() - set(times):
            if left[key] != right[key]:
                differing.append(f"record of epoch {left['epoch']}: {key}")
    best = [load_checkpoint(path / "best.safetensors")[0] for path in (one, other)]
    differing += [f"best {n}" for n in best[0] if not _equal(best[0], best[1], n)]
    return differing


def _equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], name: str) -> bool:
    return name in a and name in b and torch.equal(a[name], b[name])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    work = Path(tempfile.mkdtemp(prefix="opteq-kill-"))
    reference, victim = work / "reference", work / "victim"
    process = start(reference, options.epochs, resume=False)
    _, complaint = process.communicate()
    if process.returncode:
        print(complaint.decode())
        return 1
    kills = lost = unreadable = steps = epochs = rounds = temporary = 0
    while kills < options.kills:
        # A run that comes to its end is thrown away and started again, until all kills are done.
        resume = (victim / "recipe.yaml").is_file()
        process = start(victim, options.epochs, resume=resume)
        if _strike(process, victim, chance):
            kills += 1
        else:
            if process.returncode:
                print((process.stderr.read() if process.stderr else b"").decode())
                return 1
            rounds += 1
            differing = compare(reference, victim)
            if differing:
                print("the final state differs:", differing[:5])
                return 1
            shutil.rmtree(victim)
            steps = epochs = 0
            continue
        temporary += _temporary(victim)
        try:
            now, finished = progress(victim)
        except Exception as error:
            unreadable += 1
            print("unreadable:", error, flush=True)
            continue
        lost += finished < epochs or now < steps
        steps, epochs = now, finished
        print(f"kill {kills}: step {now}, {finished} epochs finished", flush=True)
    process = start(victim, options.epochs, resume=(victim / "recipe.yaml").is_file())
    process.wait()
    differing = compare(reference, victim)
    print(
        f"{kills} kills ({temporary} of them inside a save), {rounds + 1} runs to the end: "
        f"{unreadable} unreadable checkpoints, {lost} losses, "
        f"{'bitwise equal' if not differing else f'DIFFERENT: {differing[:5]}'}"
    )
    shutil.rmtree(work)
    return 1 if unreadable or lost or differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
