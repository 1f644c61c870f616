"""Temporary changes to how a model runs: `with use_gradient(model, rule): ...`. Afterwards
everything is as it was before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from torch import nn

from opteq.gradient import GradientRule
from opteq.layer import Solved, WarmStart, equilibria


@contextmanager
def record_steps(model: nn.Module) -> Iterator[None]:
    """Every equilibrium in `model` records its steps in `Solution.trace`."""
    with _each(model, "records_steps", lambda: True):
        yield


@contextmanager
def keep_solves(model: nn.Module) -> Iterator[list[Solved]]:
    """A list to which every solve in `model` is added, with its layer and injection; also to those
    of such contexts around this one."""
    found: list[Solved] = []
    around = next((layer.kept for layer in equilibria(model) if layer.kept is not None), None)
    with _each(model, "kept", lambda: found):
        yield found
    if around is not None:
        around += found


@contextmanager
def warm_start(model: nn.Module) -> Iterator[None]:
    """Every equilibrium in `model` starts where its last solve ended: for inputs that change little
    from call to call, such as frames of a video or the steps of an attack. The answers stay within
    the tolerance; only the number of steps changes. A batch of another shape starts afresh, and so
    does a layer that is defined as a number of steps from its start (`Unrolled`).

    >>> import torch, opteq
    >>> from opteq.context import warm_start
    >>> model = opteq.create_model("geq_digits").eval()
    >>> image = torch.rand(1, 1, 8, 8)
    >>> with torch.no_grad(), warm_start(model):
    ...     steps = [model.run(image).solutions[0].evaluations for _ in range(2)]
    >>> steps[1] < steps[0]
    True
    """
    with _each(model, "warm_start", WarmStart):
        yield


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode; afterwards every module returns to its own mode, so one that was frozen
    stays frozen."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


@contextmanager
def fixed_parameters(model: nn.Module) -> Iterator[None]:
    """Parameters need no gradient: for attacks, and maps of what matters, which only ask for that
    of the images. Norms of weights are then computed once, not at every call."""
    moving = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in moving:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in moving:
            parameter.requires_grad_(True)


@contextmanager
def at_most(model: nn.Module, steps: int) -> Iterator[None]:
    """Every equilibrium in `model` stops after so many steps, and says nothing if it has not
    converged: to see that a model runs, not what it answers."""
    layers = equilibria(model)
    before = [layer.solver for layer in layers]
    for layer in layers:
        layer.solver = replace(layer.solver, max_steps=steps, on_failure="ignore")
    try:
        yield
    finally:
        for layer, own in zip(layers, before, strict=True):
            layer.solver = own


@contextmanager
def use_gradient(model: nn.Module, rule: GradientRule) -> Iterator[None]:
    """Every equilibrium in `model` uses another gradient rule: an attack through unrolled steps, an
    exact gradient to compare with. `Unrolled` takes the plain steps of each layer's solver:
    Picard's in place of Anderson's.

    >>> import torch, opteq
    >>> from opteq.context import use_gradient
    >>> from opteq.gradient import Unrolled
    >>> model = opteq.create_model("geq_digits").eval()
    >>> with use_gradient(model, Unrolled(steps=20)):
    ...     solution = model.run(torch.rand(1, 1, 8, 8)).solutions[0]
    >>> solution.evaluations  # twenty steps, and one for the residual that is reported
    21
    """
    layers = equilibria(model)
    before = [(layer.gradient, layer.solver) for layer in layers]
    for layer in layers:
        layer.gradient, layer.solver = rule, rule.solver_or(None, layer.solver)
    try:
        yield
    finally:
        for layer, own in zip(layers, before, strict=True):
            layer.gradient, layer.solver = own


@contextmanager
def _each(model: nn.Module, name: str, value: Callable[[], object]) -> Iterator[None]:
    """Give an attribute of every equilibrium in `model` a fresh value, for a while."""
    layers = equilibria(model)
    before = [getattr(layer, name) for layer in layers]
    for layer in layers:
        setattr(layer, name, value())
    try:
        yield
    finally:
        for layer, own in zip(layers, before, strict=True):
            setattr(layer, name, own)
