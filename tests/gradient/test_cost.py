"""What a gradient costs: memory that does not grow with steps, no graph in the forward solve."""

import pytest
import torch

import opteq
from catalogue import SIMILARITIES
from narrow import a, known
from opteq.equilibrium import Proximal
from opteq.gradient import Implicit, OneStep, Phantom, Unrolled
from opteq.kernels import Linear
from opteq.operators import Dense
from opteq.penalties import NonNegative
from opteq.problem import Problem
from opteq.solve import Picard


def bytes_kept(rule, steps):
    """Bytes that autograd keeps for the backward pass."""
    torch.manual_seed(0)
    problem = Problem(penalty=NonNegative(), similarity=Linear(Dense(64, 64, norm_bound=0.999)))
    solver = Picard(tol=0, max_steps=steps, on_failure="ignore")
    layer = opteq.Equilibrium(problem, solver=solver, gradient=rule)
    u = torch.randn(256, 64, requires_grad=True)
    kept = {}

    def pack(tensor):
        kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        z = layer(u)
    assert z.requires_grad
    return sum(kept.values())


@pytest.mark.parametrize("rule", [Implicit(), Phantom(), OneStep()])
def test_memory_does_not_grow_with_solver_steps(rule):
    assert bytes_kept(rule, 100) <= 1.05 * bytes_kept(rule, 5)


def test_memory_of_unrolling_grows():
    assert bytes_kept(Unrolled(steps=100), 5) > 10 * bytes_kept(Unrolled(steps=5), 5)


@pytest.mark.parametrize("name", [n for n in SIMILARITIES if n != "value only"])
def test_forward_solve_of_built_in_kernels_uses_no_autograd(name, monkeypatch):
    case = SIMILARITIES[name]
    problem = Problem(penalty=NonNegative(), similarity=case.make())
    layer = opteq.Equilibrium(problem, solver=Picard(tol=1e-4, on_failure="ignore"))

    def refuse(*args, **kwargs):
        raise AssertionError("autograd was used in the forward solve")

    for module, function in (
        (torch.autograd, "grad"),
        (torch.func, "grad"),
        (torch.func, "vjp"),
        (torch.func, "jvp"),
    ):
        monkeypatch.setattr(module, function, refuse)
    u = case.size * torch.randn(2, *case.injection)
    with torch.no_grad():
        layer(u)
    grads_enabled = []
    # One sample: if some are done before others, the map is restricted to the rest.
    bound = a(Proximal, layer.map).bind(u[:1])
    kind = type(bound.problem.similarity)
    gradient = kind.gradient
    monkeypatch.setattr(
        kind,
        "gradient",
        lambda self, z: grads_enabled.append(torch.is_grad_enabled()) or gradient(self, z),
    )
    solution = layer.gradient.solve(bound, bound.start(), layer.solver, trace=True)
    # The solve without a graph, but for evaluations that may be its last: the graph of the one that
    # was is what the gradient uses, so the map is not applied again.
    residual = known(solution.trace).residual
    near = [float(r.max()) <= 100 * layer.solver.tol for r in residual]
    assert grads_enabled == [False, *near[:-1]]
    assert grads_enabled[-1]
    assert len(grads_enabled) == solution.evaluations


def test_weights_are_normalised_once_a_solve():
    operator = Dense(8, 8)
    calls = []
    norm = operator.differentiable_norm
    operator.differentiable_norm = lambda weight: calls.append(1) or norm(weight)
    layer = opteq.Equilibrium(Problem(penalty=NonNegative(), similarity=Linear(operator)))
    layer(torch.randn(4, 8, requires_grad=True)).sum().backward()
    assert len(calls) == 1
