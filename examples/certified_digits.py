"""How far is each digit from being taken for another? Proved from below, found from above.

A network of proximal layers cannot stretch, so the lead of its first class is a radius within which
no change of the image matters. An attack looks for the smallest change that does. The truth lies
between the two.

    python examples/certified_digits.py --output certified.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

import opteq
from opteq.attacks import Attack, projected_gradient
from opteq.data import load_data
from opteq.data.splits import sample
from opteq.exhibits import Tile, Tiles
from opteq.models.network import Network
from opteq.report.pictures import write_picture
from opteq.theory.robustness import predicted_radius


def smallest_change(model: Network, x: Tensor, labels: Tensor, rounds: int) -> Tensor:
    """For each image the nearest one found that gets another class, by halving the size of the
    attack."""
    low = torch.zeros(len(x))
    high = torch.full((len(x),), 3.0)
    found = x.clone()
    for _ in range(rounds):
        middle = (low + high) / 2
        moved = torch.cat(
            [
                projected_gradient(
                    model, x[i : i + 1], labels[i : i + 1], Attack(float(size), "l2", steps=20)
                )
                for i, size in enumerate(middle)
            ]
        )
        with torch.no_grad():
            fooled = model(moved).argmax(1) != labels
        found[fooled] = moved[fooled]
        high = torch.where(fooled, middle, high)
        low = torch.where(fooled, low, middle)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("certified.png"))
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7, help="halvings of the attack's size")
    options = parser.parse_args()
    torch.manual_seed(0)

    model = opteq.create_model("proximal_digits", pretrained=True)
    test = load_data("digits").test
    images, labels = sample(test, 100)
    x = images.float() / 255
    with torch.no_grad():
        right = (model(x).argmax(1) == labels).nonzero()[:, 0].tolist()
    # One of each class, as far as they go.
    chosen = list({int(labels[i]): i for i in right}.values())[: options.images]
    x, labels = x[chosen], labels[chosen]

    radii = predicted_radius(model, x)
    assert radii is not None
    moved = smallest_change(model, x, labels, options.rounds)
    with torch.no_grad():
        others = model(moved).argmax(1)
    rows: list[list[Tile]] = [[], []]
    for i in radii.argsort(descending=True).tolist():
        size = float((moved[i] - x[i]).norm())
        assert size >= float(radii[i]) or bool(others[i] == labels[i])
        rows[0].append(
            Tile(f"{int(labels[i])}, certain\nwithin {float(radii[i]):.2f}", x[i, 0].numpy())
        )
        fooled = f"taken for {int(others[i])}\nafter {size:.2f}"
        word = fooled if others[i] != labels[i] else f"still {int(labels[i])}\nafter 3.00"
        rows[1].append(Tile(word, moved[i, 0].clamp(0, 1).numpy()))
        print(f"{int(labels[i])}: certain within {float(radii[i]):.3f}, {word}".replace("\n", " "))
    write_picture(Tiles("Proved (above) and found by an attack (below)", rows), options.output)
    print(f"picture: {options.output}")


if __name__ == "__main__":
    main()
