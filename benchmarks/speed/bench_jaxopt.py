"""A second peer: jaxopt's Anderson acceleration and fixed-point iteration, compiled by XLA."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from cells import solved
from solves import Contender, race

import opteq
from opteq.errors import DataError
from opteq.evaluation.benchmark import Benchmark, Finding, Outcome
from opteq.kernels import Gaussian, Linear
from opteq.operators import Dense
from opteq.penalties import NonNegative
from opteq.problem import Problem
from opteq.solve import Anderson, Picard

BATCH, STATE, MIDDLE = 64, 256, 512
NORM, GAMMA = 0.95, 4e-4  # 0.2 over the mean squared distance


def run(seconds, show) -> Outcome:
    outcome = Outcome()
    for kernel in ("gaussian", "linear"):
        for tol in (1e-3, 1e-5):
            show(f"{kernel} kernel, residual {tol:g}")
            _compare(outcome, kernel, tol, seconds)
    return outcome


def _compare(outcome: Outcome, kernel: str, tol: float, seconds: float) -> None:
    jax, jaxopt = _peer()
    jnp = jax.numpy
    torch.manual_seed(0)
    W = torch.randn(MIDDLE, STATE)
    W = NORM * W / torch.linalg.matrix_norm(W, 2)
    operator = Dense.from_weight(W)
    gaussian = kernel == "gaussian"
    similarity = Gaussian(operator, gamma=GAMMA) if gaussian else Linear(operator)
    problem = Problem(penalty=NonNegative(), similarity=similarity)
    u = torch.randn(BATCH, MIDDLE if gaussian else STATE)
    W_there, u_there = jnp.asarray(W.numpy()), jnp.asarray(u.numpy())

    def cell(z, u):
        if not gaussian:
            return jax.nn.relu(z @ W_there.T @ W_there + u)
        q = u - z @ W_there.T
        gate = jnp.exp(-GAMMA * (q * q).sum(1, keepdims=True))
        return jax.nn.relu((gate * q) @ W_there)

    def ours(name, solver, *, compile=False) -> Contender:
        layer = opteq.Equilibrium(problem, solver=solver, compile=compile)
        return Contender(name, lambda: solved(layer, u))

    def theirs(name, make) -> Contender:
        """It stops on the size of the whole batch's residual: the loosest tolerance is taken that
        brings every sample within ours."""
        z0 = jnp.zeros((BATCH, STATE), dtype=jnp.float32)
        scale = float(np.linalg.norm(np.asarray(cell(z0, u_there))))

        def compiled_to(exponent: int) -> Any:
            solver = make(fixed_point_fun=cell, maxiter=400, tol=tol * scale * 0.7**exponent)
            return jax.jit(lambda z, u: solver.run(z, u))

        compiled = compiled_to(0)
        for exponent in range(1, 24):
            state = compiled(z0, u_there).params
            image = np.asarray(cell(state, u_there))
            gap = np.linalg.norm(image - np.asarray(state), axis=1)
            if (gap <= tol * np.linalg.norm(image, axis=1)).all():
                break
            compiled = compiled_to(exponent)

        def solve():
            found = compiled(z0, u_there)
            state = torch.from_numpy(np.array(found.params.block_until_ready()))
            return state, int(found.state.iter_num)

        return Contender(name, solve)

    contenders = [
        ours("opteq, Anderson", Anderson(tol=tol)),
        ours("opteq, Picard", Picard(tol=tol)),
        ours("opteq, Anderson, compiled", Anderson(tol=tol), compile=True),
        theirs("jaxopt, Anderson", jaxopt.AndersonAcceleration),
        theirs("jaxopt, Picard", jaxopt.FixedPointIteration),
    ]
    setting = f"{kernel} kernel, residual {tol:g}"
    measured = race(setting, contenders, lambda z: problem.map(z, u), tol, seconds)
    outcome.measurements += measured.values()
    time = {n: m.milliseconds for n, m in measured.items() if m.milliseconds is not None}
    best = {
        who: min(t for name, t in time.items() if name.startswith(who) and compiled in name)
        for who, compiled in (("opteq", "compiled"), ("jaxopt", ""))
    }
    eager = min(time["opteq, Anderson"], time["opteq, Picard"])
    outcome.findings += [
        Finding(
            f"time of the best relative to jaxopt's best, {setting}",
            eager / best["jaxopt"],
            at_most=1.3,
        ),
        Finding(
            f"the same, compiled, {setting}",
            best["opteq"] / best["jaxopt"],
            at_most=1.0,
        ),
    ]


def _peer():
    os.environ.setdefault(
        "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    )
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        import jax  # pyright: ignore[reportMissingImports]
        import jaxopt  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise DataError(
            "This benchmark compares with jaxopt, which is not installed.",
            "pip install 'opteq[jaxopt]'.",
        ) from None
    return jax, jaxopt


BENCHMARK = Benchmark(
    "jaxopt",
    "A second peer: jaxopt, compiled by XLA",
    f"Dense cells, batch {BATCH}, state {STATE}, middle {MIDDLE}, |W| = {NORM}. The peer's solves "
    "are compiled beforehand, and stop at the loosest tolerance that satisfies every sample. One "
    "thread.",
    run,
)
