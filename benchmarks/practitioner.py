"""What somebody with 3,000 photographs does, end to end, as commands: class folders made from a
real data set, two minutes of training, predictions to CSV, an explanation, a certificate, an ONNX
file that is run without opteq.

python benchmarks/practitioner.py --data-dir DIR --output runs/practitioner
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image

from opteq.data import load_data
from opteq.data.splits import limited


def photographs(folder: Path, name: str, count: int, data_dir: Path | None) -> None:
    """CLASS/NUMBER.jpg"""
    data = load_data(name, data_dir)
    images = limited(data.train, count)
    for i in range(len(images)):
        pixels, label = images.read(i)
        place = folder / data.classes[int(label)]
        place.mkdir(parents=True, exist_ok=True)
        array = pixels.permute(1, 2, 0).numpy()
        Image.fromarray(array if array.shape[2] == 3 else array[..., 0]).save(place / f"{i}.jpg")


def opteq(*words: object) -> str:
    """A command as it is typed; its output."""
    begun = time.monotonic()
    command = [sys.executable, "-m", "opteq", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    print(f"[{time.monotonic() - begun:.0f} s] opteq {' '.join(map(str, words))}", flush=True)
    return done.stdout


def in_onnxruntime(path: Path, files: list[Path]) -> list[str]:
    """Classes of image files, as a program without opteq finds them."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    facts = json.loads(session.get_modelmeta().custom_metadata_map["opteq"])
    _, height, width = facts["image_shape"]
    batch = []
    for file in files:
        with Image.open(file) as image:
            small = image.convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
        batch.append(np.asarray(small, dtype=np.float32).transpose(2, 0, 1) / 255)
    (chances,) = session.run(["probabilities"], {"images": np.stack(batch)})
    return [facts["classes"][i] for i in np.asarray(chances).argmax(1)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--images", type=int, default=3000)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--output", type=Path, default=Path("runs/practitioner"))
    options = parser.parse_args()
    photos, run = options.output / "photos", options.output / "run"
    if photos.exists():
        raise SystemExit(f"{options.output} is in use: give another --output.")
    photographs(photos, options.data, options.images, options.data_dir)
    said = opteq(
        "train", "photos", "--path", photos, "--minutes", options.minutes, "--run-dir", run
    )
    print("\n".join(said.splitlines()[-3:]))
    print(opteq("evaluate", run).strip().splitlines()[1])
    table = list(csv.DictReader(opteq("predict", run, photos, "--csv").splitlines()))
    right = [Path(row["file"]).parent.name == row["class"] for row in table]
    print(f"predict: {len(table):,} rows, {100 * sum(right) / len(right):.1f}% right")
    first = Path(table[0]["file"])
    print(opteq("explain", run, first, "--output", options.output / "why.png").strip())
    print(opteq("certify", run, "--limit", 50, "--steps", 5).strip().splitlines()[-1])
    print(opteq("export", run).strip())
    files = [Path(row["file"]) for row in table[:: max(1, len(table) // 50)]]
    theirs = in_onnxruntime(run / "model.onnx", files)
    ours = {row["file"]: row["class"] for row in table}
    same = sum(a == ours[str(file)] for a, file in zip(theirs, files, strict=True))
    print(f"onnxruntime: {same} of {len(files)} files get the class that opteq predict gives")
    return 0 if same >= 0.95 * len(files) else 1


if __name__ == "__main__":
    raise SystemExit(main())
