"""Solvers, gradient rules and regularizers by name: what a settings file can hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opteq.gradient import GradientRule, Implicit, OneStep, Phantom, Unrolled
from opteq.options import from_spec
from opteq.problem.regularizer import (
    HSIC,
    AbsoluteNorm,
    Decorrelation,
    Incay,
    Regularizer,
    SquaredNorm,
)
from opteq.solve import (
    SAM,
    Anderson,
    Auto,
    Broyden,
    ConjugateGradients,
    ForwardBackward,
    MemoryGradient,
    Nesterov,
    Newton,
    PeacemanRachford,
    Picard,
    Solver,
)


def solver_from(spec: object) -> Solver:
    """A solver from "anderson" or {"name": "anderson", "tol": 1e-4}; a Solver is returned as it is.

    >>> solver_from({"name": "picard", "damping": 0.5}).damping
    0.5
    """
    return from_spec("solver", _SOLVERS, spec)


def gradient_from(spec: object) -> GradientRule:
    """A gradient rule from "implicit" or {"name": "phantom", "steps": 5}; a rule is returned as it
    is.

    >>> gradient_from("one_step")
    OneStep()
    """
    return from_spec("gradient rule", _GRADIENTS, spec)


def regularizer_from(spec: object) -> Regularizer:
    """A regularizer from "decorrelation" or {"name": "hsic", "width": 0.5}; a Regularizer is
    returned as it is."""
    return from_spec("regularizer", _REGULARIZERS, spec)


def _sam(*, regularizer: object, **options: Any) -> SAM:
    return SAM(regularizer=regularizer_from(regularizer), **options)


def _implicit(*, solver: object = None, **options: Any) -> Implicit:
    return Implicit(solver=None if solver is None else solver_from(solver), **options)


_SOLVERS: Mapping[str, Callable[..., Solver]] = {
    "anderson": Anderson,
    "auto": Auto,
    "broyden": Broyden,
    "conjugate_gradients": ConjugateGradients,
    "forward_backward": ForwardBackward,
    "memory_gradient": MemoryGradient,
    "newton": Newton,
    "nesterov": Nesterov,
    "peaceman_rachford": PeacemanRachford,
    "picard": Picard,
    "sam": _sam,
}
_GRADIENTS: Mapping[str, Callable[..., GradientRule]] = {
    "implicit": _implicit,
    "one_step": OneStep,
    "phantom": Phantom,
    "unrolled": Unrolled,
}
_REGULARIZERS: Mapping[str, Callable[..., Regularizer]] = {
    "absolute_norm": AbsoluteNorm,
    "decorrelation": Decorrelation,
    "hsic": HSIC,
    "incay": Incay,
    "squared_norm": SquaredNorm,
}
