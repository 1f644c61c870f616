"""Learn small mazes, solve large ones: what a larger maze asks for is more steps of the solver, not
another network.

A small network reads the picture and lays wires; a current between the two marks finds the way. The
equilibrium is the electric potential, found by conjugate gradients.

    python examples/maze.py --output maze.png
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch

import opteq
from opteq.context import at_most
from opteq.data.mazes import mazes
from opteq.exhibits import Tile, Tiles
from opteq.models.network import Network
from opteq.report.pictures import write_picture

WALL, WAY, MARK = (0.2, 0.24, 0.3), (0.25, 0.6, 0.85), (0.95, 0.6, 0.1)


@torch.no_grad()
def way_through(model: Network, side: int, most: int) -> tuple[np.ndarray, int, bool]:
    """A maze with the way found in at most `most` steps, how many it took, and whether it is
    exact."""
    maze = mazes(1, side, seed=2)
    model.image_shape = (3, side, side)
    with at_most(model, most):
        output = model.run(maze.images.float() / 255)
    way = output.logits.argmax(1)[0].bool().numpy()
    passage, start, goal = maze.images[0].bool().numpy()
    picture = np.where(passage[..., None], 1.0, np.array(WALL))
    picture[way & passage] = WAY
    picture[start | goal] = MARK
    exact = bool((way == maze.labels[0].bool().numpy()).all())
    return picture, int(output.solutions[0].steps[0]), exact


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("maze.png"))
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--sides", type=int, nargs="+", default=[13, 33, 65])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = opteq.train("mazes", run_dir=Path(folder) / "run", epochs=options.epochs)
        model = run.model
    rows: list[list[Tile]] = [[], []]
    for side in options.sides:
        for row, most in enumerate((60, 5000)):
            picture, steps, exact = way_through(model, side, most)
            verdict = "exact" if exact else "not the way"
            rows[row].append(Tile(f"{side} x {side}, {steps} steps: {verdict}", picture))
            print(f"{side} x {side}: {steps} steps, {verdict}")
    write_picture(Tiles("60 steps (above), solved (below)", rows), options.output)
    print(f"picture: {options.output}")


if __name__ == "__main__":
    main()
