"""Compiled solves: the same answers, sample by sample, from one function per step."""

import copy
import pickle
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import opteq
from narrow import a, known, tensor
from opteq.equilibrium import Cell, Chain, Unit
from opteq.equilibrium.base import BoundMap, EquilibriumMap
from opteq.errors import OptionError
from opteq.kernels import Gaussian, Linear, PatchGaussian
from opteq.operators import Conv2d, Dense, PatchProjection
from opteq.penalties import NonNegative, Shrinkage
from opteq.problem import Problem
from opteq.problem.curvature import Curvature
from opteq.solve import Anderson, ForwardBackward, Picard, Status
from opteq.solve import compiled as module
from opteq.solve.anderson import Extrapolation
from opteq.solve.recurrence import Extrapolated, Guarded, solve_small
from opteq.solve.safeguard import Safeguard

pytestmark = pytest.mark.filterwarnings("ignore")  # the compiler's own


@pytest.fixture
def counter(monkeypatch):
    """All of the compiler but the code that it writes, counting what it is asked for."""
    found = CompileCounterWithBackend("aot_eager")
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=found))
    yield found
    torch._dynamo.reset()


def gaussian():
    return Problem(penalty=NonNegative(), similarity=Gaussian(Dense(7, 5, norm_bound=0.9), 0.3))


def linear():
    return Problem(penalty=NonNegative(), similarity=Linear(Dense(7, 5, norm_bound=0.9)))


def patches():
    W, H = Conv2d(6, 4, norm_bound=0.9), PatchProjection(patch=2, split=2, hidden=5)
    return Problem(penalty=Shrinkage(0.1), similarity=PatchGaussian(W, H, 0.3))


def chain():
    return Chain([Unit(Conv2d(4, 3, norm_bound=0.9), alpha=0.7) for _ in range(2)])


CASES = {
    "Gaussian": (gaussian, (5,)),
    "linear": (linear, (7,)),
    "patches": (patches, (4, 6, 6)),
    "chain": (chain, (3, 5, 5)),
}


def layers(case, solver, **options):
    """A layer, the same one compiled, and an injection."""
    make, shape = CASES[case]
    torch.manual_seed(0)
    plain = opteq.Equilibrium(make(), solver=solver, **options).double()
    torch.manual_seed(0)
    twin = opteq.Equilibrium(make(), solver=solver, compile=True, **options).double()
    return plain, twin, torch.randn(6, *shape, dtype=torch.float64)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "solver", [Anderson(tol=1e-10), Anderson(tol=1e-10, memory=2, mixing=0.8)], ids=["", "damped"]
)
def test_the_answer_and_what_is_known_of_it_are_the_same(counter, case, solver):
    plain, twin, u = layers(case, solver)
    with torch.no_grad():
        expected, found = plain.solve(u), twin.solve(u)
    assert counter.frame_count
    torch.testing.assert_close(found.state, expected.state, rtol=1e-8, atol=1e-8)
    assert found.converged.all()
    assert found.status == expected.status
    assert (found.steps - expected.steps).abs().max() <= 1
    assert (found.residual <= solver.tol).all()
    image = tensor(known(found.map)(found.state))
    gap, size = ((x.flatten(1)).norm(dim=1) for x in (image - tensor(found.state), image))
    torch.testing.assert_close(found.residual, gap / size, rtol=1e-3, atol=1e-14)


def test_steps_are_compiled_for_the_first_shapes_alone(counter):
    """Further ones take ordinary steps, and nothing is compiled twice."""
    plain, twin, _ = layers("Gaussian", Anderson(tol=1e-8))
    sizes = (3, 4, 5, 6, 7, 8)
    compiled = []
    with torch.no_grad():
        for _ in range(2):
            for batch in sizes:
                u = torch.randn(batch, 5, dtype=torch.float64)
                torch.testing.assert_close(twin(u), plain(u), rtol=1e-6, atol=1e-7)
            compiled.append(counter.frame_count)
    assert len(known(twin.compiled_steps)._known) == module._MOST_SHAPES < len(sizes)
    assert compiled[0] == compiled[1]


def test_large_states_and_other_solvers_take_the_ordinary_steps(counter, monkeypatch):
    for solver in (Anderson(tol=1e-8, memory=12), ForwardBackward(tol=1e-8), Picard(tol=1e-8)):
        plain, twin, u = layers("Gaussian", solver)
        torch.testing.assert_close(twin(u), plain(u))
    monkeypatch.setattr(module, "_LARGEST", 6 * 7 - 1)
    plain, twin, u = layers("Gaussian", Anderson(tol=1e-8))
    monkeypatch.setattr(module, "_step", None)
    with torch.no_grad():
        torch.testing.assert_close(twin(u), plain(u))


def test_a_bad_sample_is_named_and_never_touches_another(counter):
    plain, twin, u = layers("Gaussian", Anderson(tol=1e-9, on_failure="ignore"))
    u[2] = torch.nan
    with torch.no_grad():
        found, expected = twin.solve(u), plain.solve(u)
    assert found.status == expected.status
    assert found.status[2] is Status.BAD_INPUT
    assert found.converged.tolist() == [True, True, False, True, True, True]
    others = [0, 1, 3, 4, 5]
    with torch.no_grad():
        alone = twin(u[others])
    for state in (tensor(expected.state)[others], alone):
        torch.testing.assert_close(tensor(found.state)[others], state, rtol=1e-7, atol=1e-7)


def test_a_map_that_runs_away_is_said_to(counter):
    W = torch.diag(torch.tensor([1.5, 2.0, 2.5, 3.0], dtype=torch.float64))
    problem = Problem(penalty=NonNegative(), similarity=Linear(Dense.from_weight(W)))
    solver = Anderson(tol=1e-9, max_steps=30, memory=1, on_failure="ignore")
    plain, twin = (opteq.Equilibrium(problem, solver=solver, compile=c) for c in (False, True))
    u = torch.rand(3, 4, dtype=torch.float64) + 0.1
    with torch.no_grad():
        found, expected = twin.solve(u), plain.solve(u)
    assert not found.converged.any()
    assert found.status == expected.status
    assert Status.DIVERGED in found.status
    assert found.evaluations == 30


def test_training_is_the_same(counter):
    """Gradients, and answers after weights and gamma have changed."""
    plain, twin, u = layers("Gaussian", Anderson(tol=1e-11))
    for _ in range(2):
        gradients = []
        for layer in (plain, twin):
            layer.zero_grad()
            layer(u).square().sum().backward()
            gradients.append([known(p.grad).clone() for p in layer.parameters()])
        torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-9)
        for layer in (plain, twin):
            a(Gaussian, known(layer.problem).similarity).scale_gamma(3)
            with torch.no_grad():
                for p in layer.parameters():
                    p -= 0.3 * known(p.grad)


def test_inference_mode(counter):
    plain, twin, u = layers("patches", Anderson(tol=1e-10))
    with torch.inference_mode():
        torch.testing.assert_close(twin(u), plain(u), rtol=1e-8, atol=1e-8)
    with torch.no_grad():
        torch.testing.assert_close(twin(u), plain(u), rtol=1e-8, atol=1e-8)


def test_a_trace_is_kept_when_asked_for(counter):
    _, twin, u = layers("Gaussian", Anderson(tol=1e-9))
    found = twin.solve(u, trace=True)
    assert found.trace is not None
    assert found.trace.residual.shape == (found.evaluations, 6)


def test_copies_take_the_ordinary_steps(counter):
    plain, twin, u = layers("Gaussian", Anderson(tol=1e-9))
    for again in (copy.deepcopy(twin), pickle.loads(pickle.dumps(twin))):
        assert again.compiled_steps is None
        torch.testing.assert_close(again(u), plain(u))


SLOPE = 0.3


class OwnBound(BoundMap):
    """T(z) = u - SLOPE z, for a global number."""

    def __init__(self, u):
        self.u = u

    def __call__(self, z):
        return self.u - SLOPE * tensor(z)

    def start(self):
        return torch.zeros_like(self.u)

    def select(self, index):
        return OwnBound(self.u[index])

    def curvature(self):
        return Curvature(-0.9, 0.9)


class OwnMap(EquilibriumMap):
    def bind(self, u):
        return OwnBound(u)

    def curvature(self):
        return Curvature(-0.9, 0.9)


class Interrupted(OwnBound):
    """Compiled in pieces, because it looks at a number."""

    def __call__(self, z):
        torch._dynamo.graph_break()
        return self.u - SLOPE * z

    def select(self, index):
        return Interrupted(self.u[index])


class InPieces(OwnMap):
    def bind(self, u):
        return Interrupted(u)


@pytest.mark.parametrize("own", [OwnMap, InPieces])
def test_a_users_global_number_may_change(own, counter, monkeypatch):
    twin = opteq.Equilibrium(own(), solver=Anderson(tol=1e-10), compile=True)
    u = torch.rand(3, 4, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(twin(u), u / 1.3)
        monkeypatch.setattr(f"{__name__}.SLOPE", 0.6)
        torch.testing.assert_close(twin(u), u / 1.6)
    assert own is InPieces or counter.frame_count == 2


class InPlace(torch.nn.Module):
    def forward(self, z, u):
        return z.mul_(0.5).add_(u)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_maps_that_change_their_argument_are_refused(mode):
    with mode(), pytest.raises(OptionError, match="in place"):
        opteq.Equilibrium(Cell(InPlace()), compile=True).solve(torch.ones(2, 3))


@pytest.mark.parametrize(
    ("name", "watched"),
    [
        ("G['measure']", False),
        ("G['__builtins_dict___0']['len']", False),
        ("G['SLOPE']", True),
        ("G['__import_opteq_dot_solve_dot_progress'].measure", False),
        ("G['__import_torch'].where", False),
        ("G['__import_mine'].SLOPE", True),
        ("G['__import_torch_models'].SLOPE", True),
        ("G['__import_opteq_extras_dot_a'].SLOPE", True),
        ("G['__import___main__'].SLOPE", True),
    ],
)
def test_only_our_own_globals_and_those_of_torch_are_taken_as_fixed(name, watched):
    guards = [
        SimpleNamespace(name=name, is_global=True),
        SimpleNamespace(name="z", is_global=False),
    ]
    assert module._may_change(guards) == [watched, True]


@pytest.mark.parametrize(("rate", "mixing"), [(0.0, 1.0), (0.1, 0.7), (2.0, 1.0)])
def test_extrapolation_without_a_memory_of_its_own_is_the_other(rate, mixing):
    """Point by point, with the safeguard, on a map whose extrapolated points it often refuses."""
    torch.manual_seed(3)
    A = torch.randn(5, 12, 12, dtype=torch.float64)
    A = 0.9 * A / torch.linalg.matrix_norm(A, 2)[:, None, None]
    z = other = torch.zeros(5, 12, dtype=torch.float64)

    def T(z):
        return torch.tanh((A @ z[..., None])[..., 0] * 1.05 + 0.3)

    recurrence = Guarded(Extrapolated(1, 1e-8, mixing))
    memory = recurrence.begin(z, rate)
    guard, extrapolation = Safeguard(rate), Extrapolation(1, 1e-8, mixing)
    refused = 0
    for _ in range(15):
        image = T(z)
        length = (image - z).norm(dim=1)
        z, memory = recurrence.update(memory, z, image, image - z, length)
        image = T(other)
        gap = extrapolation.gap(other, image)
        length = gap.norm(dim=1)
        proposed = extrapolation.propose(image, gap, length)
        kept = guard.keeps(image, length)
        refused += 0 if kept is None else int((~kept).sum())
        other = guard.choose(kept, proposed).clone()
        torch.testing.assert_close(z, other, rtol=1e-6, atol=1e-9)
    assert (refused > 0) == (rate < 1)


def test_small_systems_are_solved():
    torch.manual_seed(0)
    root = torch.randn(50, 6, 6, dtype=torch.float64)
    A = root @ root.mT + 0.1 * torch.eye(6, dtype=torch.float64)
    b = torch.randn(50, 6, dtype=torch.float64)
    found = solve_small(A.permute(1, 2, 0), b.T)
    torch.testing.assert_close(found.T, torch.linalg.solve(A, b[..., None])[..., 0])
