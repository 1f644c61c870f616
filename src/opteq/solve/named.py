"""Solvers by name, for settings files."""

from __future__ import annotations

from typing import Any

from opteq.options import from_spec
from opteq.problem.regularizer import regularizer_from
from opteq.solve.anderson import Anderson
from opteq.solve.auto import Auto
from opteq.solve.broyden import Broyden
from opteq.solve.forward_backward import ForwardBackward
from opteq.solve.peaceman_rachford import PeacemanRachford
from opteq.solve.picard import Picard
from opteq.solve.sam import SAM
from opteq.solve.solver import Solver


def solver_from(spec: object) -> Solver:
    """A solver from "anderson" or {"name": "anderson", "tol": 1e-4}; a Solver is returned as it is.

    >>> solver_from({"name": "picard", "damping": 0.5}).damping
    0.5
    """
    return from_spec("solver", _SOLVERS, spec)


def _sam(*, regularizer: object, **options: Any) -> SAM:
    return SAM(regularizer=regularizer_from(regularizer), **options)


_SOLVERS = {
    "anderson": Anderson,
    "auto": Auto,
    "broyden": Broyden,
    "forward_backward": ForwardBackward,
    "peaceman_rachford": PeacemanRachford,
    "picard": Picard,
    "sam": _sam,
}
