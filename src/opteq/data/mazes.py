"""Mazes made on the fly: walls, a start and a goal, and the one way between them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch

from opteq.data.dataset import Data, MemoryImages
from opteq.errors import OptionError

_TRAINED, _TESTED, _SIDE = 2000, 200, 13


def load_mazes(side: int = _SIDE, test_side: int | None = None) -> Data:
    """Mazes in which every two places are joined by exactly one way: images of three channels
    (passage, start, goal) and label maps that are 1 on the way from start to goal. Those that are
    learnt from have sides from 5 up to `side`, the rest of the image being wall, since the smallest
    are learnt first; those of the test fill their image. The same each time."""
    test_side = side if test_side is None else test_side
    for value in (side, test_side):
        if value < 5 or value % 2 == 0:
            raise OptionError(f"A maze cannot have a side of {value}.", "Give an odd side from 5.")
    return Data(
        "mazes",
        mazes(_TRAINED, side, seed=0, smaller=True),
        mazes(_TESTED, test_side, seed=1),
        ("elsewhere", "on the way"),
        task="segmentation",
    )


def mazes(count: int, side: int, *, seed: int, smaller: bool = False) -> MemoryImages:
    """So many mazes that fill their images, or of every size up to that."""
    rng = np.random.default_rng((seed, side))
    images = np.zeros((count, 3, side, side), np.uint8)
    labels = np.zeros((count, side, side), np.int64)
    for image, label in zip(images, labels, strict=True):
        own = int(rng.integers(2, side // 2 + 1)) * 2 + 1 if smaller else side
        row, column = rng.integers(0, side - own + 1, 2)
        window = (slice(row, row + own), slice(column, column + own))
        image[:, *window], label[window] = _maze(own, rng)
    return MemoryImages(torch.from_numpy(images), torch.from_numpy(labels))


def _maze(side: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """One maze: (3, side, side) in bytes, and where the way is."""
    cells = side // 2
    passage = np.zeros((side, side), np.uint8)
    passage[1, 1] = 1
    parents: dict[tuple[int, int], tuple[int, int]] = {}
    stack = [(0, 0)]
    visited = {(0, 0)}
    while stack:
        row, column = stack[-1]
        around = [(row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)]
        free = [
            (r, c) for r, c in around if 0 <= r < cells and 0 <= c < cells and (r, c) not in visited
        ]
        if not free:
            stack.pop()
            continue
        following = free[rng.integers(len(free))]
        parents[following] = (row, column)
        visited.add(following)
        passage[row + following[0] + 1, column + following[1] + 1] = 1
        passage[2 * following[0] + 1, 2 * following[1] + 1] = 1
        stack.append(following)
    start, goal = (divmod(int(n), cells) for n in rng.choice(cells * cells, 2, replace=False))
    image = np.zeros((3, side, side), np.uint8)
    image[0] = 255 * passage
    image[1, 2 * start[0] + 1, 2 * start[1] + 1] = 255
    image[2, 2 * goal[0] + 1, 2 * goal[1] + 1] = 255
    return image, _way(side, _to_root(start, parents), _to_root(goal, parents))


def _to_root(
    cell: tuple[int, int], parents: dict[tuple[int, int], tuple[int, int]]
) -> list[tuple[int, int]]:
    found = [cell]
    while found[-1] in parents:
        found.append(parents[found[-1]])
    return found


def _way(side: int, one: list[tuple[int, int]], other: list[tuple[int, int]]) -> np.ndarray:
    """The places on the way to the root from either end, up to where the two ways meet."""
    while len(one) > 1 and len(other) > 1 and one[-2:] == other[-2:]:
        one, other = one[:-1], other[:-1]
    way = np.zeros((side, side), np.uint8)
    for cells in (one, other):
        for row, column in cells:
            way[2 * row + 1, 2 * column + 1] = 1
        for (r, c), (s, d) in pairwise(cells):
            way[r + s + 1, c + d + 1] = 1
    return way
