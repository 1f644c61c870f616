"""S4: a training step at the same gradient rule."""

from __future__ import annotations

import torch
from arithmetic import bare_rate, count_flops
from cells import CHANNELS, SIDE, PlainCell, geq_cell, require_peer
from torch import nn
from torch.nn import functional

import opteq
from opteq.evaluation.benchmark import Benchmark, Finding, Measurement, Outcome
from opteq.evaluation.timing import best_times
from opteq.gradient import Implicit, Phantom
from opteq.solve import Anderson

RULES = {
    "implicit": (Implicit(tol=1e-3), {"ift": True, "b_tol": 1e-3, "b_stop_mode": "rel"}),
    "phantom": (Phantom(steps=5, damping=0.8), {"grad": 5, "tau": 0.8}),
}


def run(seconds, show) -> Outcome:
    outcome = Outcome()
    for rule, (own, theirs) in RULES.items():
        show(rule)
        steps = {
            "opteq": _ours(own),
            "torchdeq, plain cell": _peer(theirs, plain=True),
            "torchdeq, our cell": _peer(theirs, plain=False),
        }
        times = best_times(steps, seconds=seconds)
        outcome.measurements += [
            Measurement(rule, name, 1e3 * seconds_) for name, seconds_ in times.items()
        ]
        alone = count_flops(steps["opteq"]) / bare_rate()
        outcome.measurements.append(Measurement(rule, "opteq's arithmetic alone", 1e3 * alone))
        for name in list(steps)[1:]:
            outcome.findings.append(
                Finding(
                    f"times faster than {name}, {rule}", times[name] / times["opteq"], at_least=2
                )
            )
    return outcome


def _parts():
    cell, x = geq_cell()
    cell.train()
    torch.manual_seed(1)
    head = nn.Linear(CHANNELS, 10)
    y = torch.randint(10, (len(x),))
    # Features have a graph behind them, as those of a stem.
    return cell, x.requires_grad_(), head, y


def _step(parameters, loss):
    optimizer = torch.optim.SGD(parameters, lr=1e-6)

    def step():
        value = loss()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()

    return step


def _ours(rule):
    cell, x, head, y = _parts()
    layer = opteq.Equilibrium(cell.problem, solver=Anderson(tol=1e-3), gradient=rule)

    def loss():
        z = layer(cell.injection(x))
        return functional.cross_entropy(head(z.mean((2, 3))), y)

    return _step([*cell.parameters(), *head.parameters()], loss)


def _peer(settings, *, plain: bool):
    cell, x, head, y = _parts()
    deq = require_peer().get_deq(
        f_solver="anderson", f_max_iter=30, f_tol=1e-3, f_stop_mode="rel", b_max_iter=30, **settings
    )
    deq.train()
    z0 = torch.zeros(len(x), CHANNELS, SIDE, SIDE)
    straight = PlainCell(cell)
    parameters = [*(straight if plain else cell).parameters(), *head.parameters()]

    def loss():
        bound = None if plain else cell.problem.bind(cell.injection(x))
        states, _ = deq((lambda z: straight(z, x)) if bound is None else bound.map, z0)
        return functional.cross_entropy(head(states[-1].mean((2, 3))), y)

    return _step(parameters, loss)


BENCHMARK = Benchmark(
    "s4",
    "Training step",
    "Forward, backward and update of the cell of s1 with a linear head; forward residual 1e-3, "
    "implicit gradient to 1e-3, phantom with 5 steps of damping 0.8. One thread.",
    run,
)
