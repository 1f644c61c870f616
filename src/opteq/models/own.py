"""Models of a user's own: any module from images to logits, and the checks that its terms obey
their laws."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from opteq.context import keep_solves
from opteq.equilibrium.base import EquilibriumMap
from opteq.errors import OptionError
from opteq.layer import Equilibrium, equilibria
from opteq.models.bodies import Single
from opteq.models.heads import PooledHead
from opteq.models.network import Classifier, Network, Output, bounded_classifier
from opteq.models.stems import Stem
from opteq.operators import LinearOperator
from opteq.problem import Problem
from opteq.problem.law_checks import check_adjoint, check_norm, check_penalty, check_similarity

# Penalties are tried at this many numbers, similarities on this many samples.
_POINTS, _SAMPLES = 201, 2
# For double precision; terms by autograd and by hand round differently.
_TOLERANCE = 1e-7
# For models that compute in single precision, and for norms that were.
_COARSE = 1e-4


def classifier(
    layer: Equilibrium | Problem | EquilibriumMap,
    *,
    channels: int,
    classes: int = 10,
    in_channels: int = 3,
    reductions: int = 0,
    head_grid: int = 1,
    certified: bool = False,
    head_norm: float = 10.0,
) -> Classifier:
    """A classifier around an equilibrium of yours, whose injection and state have `channels`
    channels: two convolutions with batch norm and ReLU before it (`reductions` more halve the
    image), batch norm, the mean over each of `head_grid` x `head_grid` parts of the image and a
    linear map behind it.

    With `certified` nothing before it can stretch and the head's norm is at most `head_norm`, so
    that certificates from image to logits are worth having.

    >>> import opteq
    >>> from opteq.kernels import Linear
    >>> from opteq.operators import Conv2d
    >>> from opteq.penalties import NonNegative
    >>> W = Conv2d(8, 8, norm_bound=0.9)
    >>> problem = opteq.Problem(penalty=NonNegative(), similarity=Linear(W))
    >>> model = classifier(problem, channels=8)
    >>> model(torch.rand(2, 3, 16, 16)).shape
    torch.Size([2, 10])
    """
    layer = layer if isinstance(layer, Equilibrium) else Equilibrium(layer)
    body = Single(layer, channels=channels, parts=1, fusion="sum")
    if certified:
        ends = (in_channels, channels, classes)
        return bounded_classifier(body, ends, reductions, head_grid, head_norm)
    stem = Stem(in_channels, channels, reductions=reductions)
    head = PooledHead(channels, classes, head_grid)
    return Classifier(stem, body, channels, classes, head=head)


class Wrapped(Network):
    """Any module from images to logits, with the solutions of all equilibria in it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def compute(self, x: Tensor) -> Output:
        with keep_solves(self) as solves:
            logits = self.module(x)
        return Output(logits, [one.solution for one in solves])


def as_network(built: Any, name: str) -> Network:
    """What a user's function has built, as a model."""
    if isinstance(built, Network):
        return built
    if isinstance(built, nn.Module):
        return Wrapped(built)
    raise OptionError(
        f"{name} built a {type(built).__name__}, not a model.",
        "Return a torch.nn.Module from images to logits, such as opteq.models.classifier(...).",
    )


def require_logits(logits: Any, classes: int, name: str) -> None:
    """Refuse a model of one's own whose output is not one number per class."""
    shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if not isinstance(logits, Tensor) or logits.ndim not in (2, 4) or logits.shape[1] != classes:
        raise OptionError(
            f"{name} returned {shape} for one image, and the data has {classes} classes.",
            f"Return logits of shape (batch, {classes}), for segmentation with height and width.",
        )


def check_terms(model: nn.Module, x: Tensor) -> None:
    """Check the operators, penalties and similarities that a user has defined, in double precision,
    where the model meets them: `LawError` says which law is broken, and by how much."""
    _check_operators(model, x)
    if not any(_has_own(layer.problem) for layer in equilibria(model)):
        return
    twin = copy.deepcopy(model).double().eval()
    with torch.no_grad(), keep_solves(twin) as solves:
        twin(x.double().expand(_SAMPLES, *x.shape[1:]))
    line = torch.linspace(-6, 6, _POINTS, dtype=torch.float64, device=x.device)
    for one in {solved.layer: solved for solved in solves}.values():
        problem = one.layer.problem
        if problem is None or not _has_own(problem):
            continue
        if _is_own(problem.penalty):
            check_penalty(problem.penalty, line, tol=_TOLERANCE)
        if _is_own(problem.similarity):
            assert isinstance(one.solution.state, Tensor)
            z = torch.randn_like(one.solution.state)
            check_similarity(problem.similarity, z, one.injection, tol=_TOLERANCE)


def _check_operators(model: nn.Module, x: Tensor) -> None:
    """In double precision; in the model's own if it cannot be run in another."""
    if not _own_operators(model):
        return
    for double, tol in ((True, _TOLERANCE), (False, _COARSE)):
        twin = copy.deepcopy(model).eval()
        twin = twin.double() if double else twin
        given = x.double() if double else x
        try:
            with torch.no_grad(), _seen_by(_own_operators(twin)) as seen:
                twin(given.expand(_SAMPLES, *x.shape[1:]))
            for operator, z in seen.items():
                z = torch.randn_like(z)
                check_adjoint(operator, z, tol=tol)
                check_norm(operator, z, tol=_COARSE)
            return
        except RuntimeError:
            if not double:
                raise


def _own_operators(model: nn.Module) -> list[LinearOperator]:
    return [m for m in model.modules() if isinstance(m, LinearOperator) and _is_own(m)]


@contextmanager
def _seen_by(operators: Sequence[LinearOperator]) -> Iterator[dict[LinearOperator, Tensor]]:
    """The first state that each operator is given, or that its adjoint gives, inside the block."""
    seen: dict[LinearOperator, Tensor] = {}

    def keep(operator: LinearOperator, _: nn.Module, given: tuple[Tensor, ...]) -> None:
        for z in given:
            seen.setdefault(operator, z)

    def watched(operator: LinearOperator) -> Callable[[Tensor], Tensor]:
        adjoint = operator.adjoint

        def run(r: Tensor) -> Tensor:
            z = adjoint(r)
            seen.setdefault(operator, z)
            return z

        return run

    hooks = [one.register_forward_pre_hook(partial(keep, one)) for one in operators]
    for one in operators:
        one.adjoint = watched(one)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield seen
    finally:
        for hook, one in zip(hooks, operators, strict=True):
            hook.remove()
            del one.adjoint


def _has_own(problem: Problem | None) -> bool:
    return problem is not None and (_is_own(problem.penalty) or _is_own(problem.similarity))


def _is_own(term: object) -> bool:
    return not type(term).__module__.startswith("opteq.")
