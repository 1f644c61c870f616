"""What GEQ's gates do: they close where the features are large, and gamma says how early.

A speck is put beside a digit. The picture shows the gates of the trained network at both images,
and how sure it is of the digit, with its own gamma and with others.

    python examples/gates.py --output gates.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import opteq
from opteq.data import load_data
from opteq.evaluation.explore import Handling, handled
from opteq.evaluation.saliency import gate_map
from opteq.exhibits import Tile, Tiles
from opteq.report.pictures import write_picture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("gates.png"))
    parser.add_argument("--image", type=int, default=3, help="which test image")
    options = parser.parse_args()
    image, truth = load_data("digits").test.read(options.image)
    digit, label = image[None].float() / 255, int(truth)
    specked = digit.clone()
    specked[..., 1:3, 6:8] = 1.0
    model = opteq.create_model("geq_digits", pretrained=True)
    rows: list[list[Tile]] = [[], []]
    for row, (name, x) in zip(rows, (("clean", digit), ("with a speck", specked)), strict=True):
        row.append(Tile(f"{label}, {name}", x[0, 0].numpy()))
        for gamma in (0.25, 1.0, 4.0):
            other = handled(model, Handling(gamma=gamma))
            with torch.no_grad():
                chance = float(other(x).softmax(1)[0, label])
            gates = gate_map(other, x)
            assert gates is not None
            words = f"gamma x {gamma:g}: {100 * chance:.0f}%\ngates {float(gates.mean()):.2f}"
            row.append(Tile(words, gates[0].numpy()))
            print(f"{name}, {words}".replace("\n", ", "))
    write_picture(
        Tiles("Gates of GEQ (light: open), and the chance of the truth", rows), options.output
    )
    print(f"picture: {options.output}")


if __name__ == "__main__":
    main()
