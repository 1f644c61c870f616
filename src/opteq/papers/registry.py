"""Experiments by id."""

from __future__ import annotations

from opteq.errors import UnknownOptionError, nearest
from opteq.papers import geq, kerdeq, mopteq, opteq, ours
from opteq.papers.engine.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    **geq.EXPERIMENTS,
    **kerdeq.EXPERIMENTS,
    **opteq.EXPERIMENTS,
    **mopteq.EXPERIMENTS,
    **ours.EXPERIMENTS,
}


def experiment(name: str) -> Experiment:
    """The experiment with this id."""
    if name not in EXPERIMENTS:
        raise UnknownOptionError(f"There is no experiment {name!r}.", nearest(name, EXPERIMENTS))
    return EXPERIMENTS[name]
