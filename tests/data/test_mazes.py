"""Mazes: one way between every two places."""

from collections import deque

import pytest
import torch

from opteq.data import load_data
from opteq.data.mazes import mazes
from opteq.data.settings import DataSettings
from opteq.errors import OptionError


def shortest(passage, start, goal):
    """By breadth-first search: the cells on the way."""
    before, queue = {start: start}, deque([start])
    while queue:
        row, column = queue.popleft()
        for cell in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
            inside = all(0 <= n < len(passage) for n in cell)
            if inside and passage[cell] and cell not in before:
                before[cell] = (row, column)
                queue.append(cell)
    way = {goal}
    while goal != start:
        goal = before[goal]
        way.add(goal)
    return way, len(before)


@pytest.mark.parametrize(("side", "smaller"), [(5, False), (13, False), (13, True), (21, False)])
def test_the_label_is_the_only_way(side, smaller):
    found = mazes(30, side, seed=3, smaller=smaller)
    for image, label in zip(found.images, found.labels, strict=True):
        passage = image[0] > 0
        start, goal = (tuple(image[k].nonzero()[0].tolist()) for k in (1, 2))
        way, reached = shortest(passage, start, goal)
        assert {tuple(p) for p in label.nonzero().tolist()} == way
        # All passages are joined, and a tree has one edge less than nodes: no second way.
        assert reached == int(passage.sum())
        edges = int((passage[1:] & passage[:-1]).sum() + (passage[:, 1:] & passage[:, :-1]).sum())
        assert edges == reached - 1


def test_mazes_are_the_same_each_time_and_differ():
    a, b = mazes(5, 9, seed=0), mazes(5, 9, seed=0)
    assert torch.equal(a.images, b.images)
    assert not torch.equal(a.images, mazes(5, 9, seed=1).images)
    assert not torch.equal(a.images[0], a.images[1])


def test_an_even_side_is_refused():
    with pytest.raises(OptionError, match="odd side"):
        load_data(DataSettings(name="mazes", image_size=12))
