"""Proximal layers: how many evaluations a solve takes, and how long a training step."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

import opteq
from opteq.evaluation.benchmark import Benchmark, Finding, Measurement, Outcome
from opteq.evaluation.timing import best_times
from opteq.kernels import Measurement as Data
from opteq.kernels import Ridge
from opteq.layer import equilibria
from opteq.operators import Conv2d, freeze
from opteq.penalties import Free
from opteq.potentials import Ramp
from opteq.problem import Problem
from opteq.solve import ForwardBackward, Nesterov, Newton, Solver

BATCH, CHANNELS, SIDE = 100, 32, 8
NORMS, TOLERANCES = (2.0, 5.0), (1e-3, 1e-5)
TRAINING_TOLERANCE = 0.03


def run(seconds, show) -> Outcome:
    outcome = Outcome()
    for norm in NORMS:
        for tol in TOLERANCES:
            setting = f"|W| = {norm:g}, residual {tol:g}"
            show(setting)
            _solves(outcome, setting, norm, tol, seconds)
    show("training step")
    _training(outcome, seconds)
    return outcome


def _solves(outcome: Outcome, setting: str, norm: float, tol: float, seconds: float) -> None:
    problem, u = _problem(norm)
    solvers: dict[str, Solver] = {
        "opteq, ForwardBackward": ForwardBackward(tol=tol, max_steps=500),
        "opteq, Nesterov": Nesterov(tol=tol),
        "opteq, Newton": Newton(tol=tol),
    }
    layers = {
        name: opteq.Equilibrium(problem, solver=solver, allow_uncertified=True)
        for name, solver in solvers.items()
    }
    with torch.no_grad():
        found = {name: layer.solve(u, u) for name, layer in layers.items()}
        times = best_times(
            {name: lambda layer=layer: layer.solve(u, u) for name, layer in layers.items()},
            seconds=seconds,
        )
        ideal = _knowing_what_is_active(problem, u, tol)
    for name, solution in found.items():
        outcome.measurements.append(
            Measurement(
                setting,
                name,
                1e3 * times[name],
                solution.evaluations,
                float(solution.residual.max()),
                "" if bool(solution.converged.all()) else "not converged",
            )
        )
    outcome.measurements.append(
        Measurement(setting, "conjugate gradients, active set given", evaluations=ideal)
    )
    ours = found["opteq, ForwardBackward"].evaluations
    outcome.findings.append(
        Finding(
            f"evaluations relative to conjugate gradients, {setting}", ours / ideal, at_most=1.5
        )
    )


def _problem(norm: float) -> tuple[Problem, Tensor]:
    """A kernel with a spread of singular values up to `norm`, and injections of size 1."""
    torch.manual_seed(0)
    W = Conv2d(CHANNELS, CHANNELS, norm_bound=norm)
    with torch.no_grad():
        W.raw.mul_(2 * norm / W.norm())  # scaled back to the bound
    bias = nn.Parameter(0.1 * torch.randn(CHANNELS))
    similarity = Data() + Ridge(freeze(W), Ramp(), bias=bias)
    problem = Problem(penalty=Free(), similarity=similarity)
    return problem.requires_grad_(False), torch.randn(BATCH, CHANNELS, SIDE, SIDE)


def _knowing_what_is_active(problem: Problem, u: Tensor, tol: float) -> int:
    """The products that conjugate gradients take from u, for the slowest sample, if it is known
    where psi is active: then the problem is the system (I + W'DW) z = u - W'Db, and no method
    that knows only such products needs fewer."""
    exact = opteq.Equilibrium(problem, solver=Newton(tol=1e-6)).solve(u, u)
    prior = cast(Ridge, problem.similarity.terms[1])  # type: ignore[attr-defined]
    W, b = prior.operator, cast(Tensor, prior.bias)[:, None, None]
    active = (W(exact.state) + b > 0).to(u)
    z = u
    residual = u - z - W.adjoint(active * (W(z) + b))
    direction, squared = residual, _dot(residual, residual)
    taken = 1
    while bool(
        (residual.flatten(1).norm(dim=1) > tol * (z + residual).flatten(1).norm(dim=1)).any()
    ):
        image = direction + W.adjoint(active * W(direction))
        length = squared / _dot(direction, image)
        z = z + length * direction
        residual = residual - length * image
        following = _dot(residual, residual)
        direction, squared = residual + following / squared * direction, following
        taken += 1
    return taken


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum((1, 2, 3), keepdim=True)


def _training(outcome: Outcome, seconds: float) -> None:
    """Four layers each, as they stand at the start of training and with |W| = 2."""
    torch.manual_seed(0)
    images, labels = torch.rand(BATCH, 3, 32, 32), torch.randint(10, (BATCH,))
    models = {
        "convex potential": opteq.create_model("convex_potential_tiny"),
        "opteq, proximal": opteq.create_model("proximal_tiny", gain=2.0, start=2.0),
    }
    steps = {}
    for name, model in models.items():
        model.train()
        for layer in equilibria(model):
            layer.solver = ForwardBackward(tol=TRAINING_TOLERANCE, max_steps=200)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

        def step(model=model, optimizer=optimizer) -> None:
            optimizer.zero_grad()
            functional.cross_entropy(model(images), labels).backward()
            optimizer.step()

        steps[name] = step
    times = best_times(steps, seconds=seconds)
    for name, time in times.items():
        outcome.measurements.append(Measurement("training step, four layers", name, 1e3 * time))
    outcome.findings.append(
        Finding(
            "training step relative to convex potentials of equal depth",
            times["opteq, proximal"] / times["convex potential"],
            at_most=4,
        )
    )


BENCHMARK = Benchmark(
    "proximal",
    "Proximal layers",
    "argmin |z - u|^2 / 2 + sum relu(Wz + b)^2 / 2 for a 3x3 kernel of 32 channels on 8x8 places, "
    "batch 100, one thread, started at u. Conjugate gradients that are told where relu is active "
    "are the least that products with W and W' can do. A training step is that of "
    "`proximal_tiny` beside `convex_potential_tiny`, solved to 0.03.",
    run,
)
