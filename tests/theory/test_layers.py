"""Bounds of each kind of map, against dense second derivatives and attacks."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import opteq
from narrow import a, classifier, known, tensor
from opteq.equilibrium import (
    BoundMap,
    Branch,
    Branches,
    Chain,
    EquilibriumMap,
    Monotone,
    Proximal,
    Unit,
)
from opteq.equilibrium.bounds import Bounds
from opteq.gradient import Implicit, Unrolled
from opteq.kernels import Gaussian, Linear
from opteq.models.bodies import Single
from opteq.models.heads import BoundedHead, PooledHead
from opteq.operators import AveragePool, Conv2d, Dense
from opteq.operators.base import promised
from opteq.operators.spectral import dense_norm
from opteq.penalties import NonNegative
from opteq.problem import HeritageDiversity, Independent, Problem
from opteq.problem.curvature import Curvature
from opteq.solve import Anderson, ForwardBackward, Picard
from opteq.states import State
from opteq.theory import certificate, gaussian_lipschitz, precise, stretch
from opteq.theory.layers import head_matrix, layer_bounds
from opteq.theory.robustness import certified_radius, margin_lipschitz

SHAPES = [(3, 4, 4), (3, 4, 4), (3, 2, 2)]


def flat(states):
    return torch.cat([z.flatten(1) for z in states], 1)


def parts(vector):
    sizes = [math.prod(shape) for shape in SHAPES]
    pieces = vector.split(sizes, -1)
    return tuple(p.view(-1, *shape) for p, shape in zip(pieces, SHAPES, strict=True))


@pytest.mark.parametrize("heritage", [True, False])
@pytest.mark.parametrize("weight", [0.0, 0.05, 0.5])
@pytest.mark.parametrize("resampling", ["average", "isometric"])
def test_slopes_of_the_coupling_bound_its_second_derivative(weight, heritage, resampling):
    """No direction of the dense Hessian of the energy bends upwards by more."""
    torch.manual_seed(0)
    coupling = HeritageDiversity(weight, heritage=heritage, resampling=resampling)
    slopes = coupling.slopes(3, SHAPES)
    allowed = float(torch.linalg.eigvalsh(slopes.upward)[-1])
    largest = []
    for size in (0.1, 2.0):
        vector = size * torch.randn(sum(math.prod(s) for s in SHAPES), dtype=torch.float64)
        hessian = torch.autograd.functional.hessian(
            lambda v: coupling.energy(parts(v[None])).sum(), vector
        )
        eigenvalues = torch.linalg.eigvalsh(hessian)
        largest.append(float(eigenvalues[-1]))
        if not weight:
            assert float(eigenvalues.abs().max()) <= float(slopes.size.sum(1).max()) + 1e-12
    assert max(largest) <= allowed + 1e-12
    assert max(largest) > 0.5 * allowed


def test_the_sign_is_as_monotone_as_its_smooth_form():
    """<z - z', h(z) - h(z')> for states that straddle the jumps."""
    torch.manual_seed(0)
    coupling = HeritageDiversity(0.3, diversity="sign")
    upward = coupling.slopes(3, SHAPES).upward
    size = sum(math.prod(s) for s in SHAPES)
    a = torch.randn(500, size, dtype=torch.float64)
    b = a + torch.rand(500, 1, dtype=torch.float64) * torch.randn_like(a)
    za, zb = parts(a), parts(b)
    along, lengths = torch.zeros(500, dtype=torch.float64), []
    for i in range(3):
        d = (za[i] - zb[i]).flatten(1)
        along += (d * (coupling.pull(za, i) - coupling.pull(zb, i)).flatten(1)).sum(1)
        lengths.append(d.norm(dim=1))
    d = torch.stack(lengths, 1)
    assert bool((along <= torch.einsum("ni,ij,nj->n", d, upward, d)).all())


def branches(coupling, *, norm=0.95, sides=(4, 2)):
    made = []
    for side, width in zip(sides, (4, 5), strict=True):
        injection = Conv2d(3, width, norm_bound=1.0)
        if side < 4:
            injection = injection @ AveragePool(4 // side)
        made.append(Branch(Conv2d(3, width, norm_bound=norm), injection, channels=width))
    return Branches(made, coupling=coupling)


def test_branches_are_unique_where_the_map_does_not_contract():
    torch.manual_seed(0)
    solver = Picard(damping=0.5, tol=1e-10, max_steps=3000)
    layer = opteq.Equilibrium(branches(HeritageDiversity(0.2)), solver=solver).double()
    known = certificate(layer, input_shape=(3, 4, 4))
    assert known.contraction == math.inf
    assert known.unique
    assert 0 < known.lipschitz < math.inf
    # Without the shapes of the branches nothing is known, and it says what is missing.
    unknown = certificate(layer)
    assert (unknown.unique, unknown.lipschitz) == (False, math.inf)
    assert "needs input_shape" in str(unknown)
    g = 3 * torch.randn(20, 3, 4, 4, dtype=torch.float64)
    star = flat(layer.solve(g).state)
    for _ in range(5):
        start = tuple(20 * torch.randn_like(z) for z in layer.solve(g).state)
        torch.testing.assert_close(flat(layer.solve(g, z0=start).state), star, atol=1e-7, rtol=1e-6)


def test_a_weight_that_is_too_large_is_not_certified():
    assert not certificate(
        opteq.Equilibrium(branches(HeritageDiversity(2.0))), input_shape=(3, 4, 4)
    ).unique


@pytest.mark.parametrize("coupling", [HeritageDiversity(0.1), HeritageDiversity(0), Independent()])
def test_branches_under_attack(coupling):
    torch.manual_seed(1)
    solver = Picard(damping=0.7, tol=1e-12, max_steps=3000)
    layer = opteq.Equilibrium(branches(coupling), solver=solver, gradient=Implicit()).double()
    bound = certificate(layer, input_shape=(3, 4, 4)).lipschitz
    g = torch.randn(20, 3, 4, 4, dtype=torch.float64)
    found = float(stretch(lambda x: flat(layer(x)), g, rounds=15).max())
    assert 0.1 * bound < found <= bound


@pytest.mark.parametrize("norms", [(0.9, 0.9), (0.9, 0.5)])
def test_constants_of_branches_worked_by_hand(norms):
    """W_i = w_i I, U_i = I, not coupled, positive: z_i = w_i g / (1 - w_i^2)."""

    def eye(w):
        return Conv2d.from_weight(
            w * torch.eye(2, dtype=torch.float64)[:, :, None, None], padding=0
        )

    both = Branches([Branch(eye(w), eye(1.0)) for w in norms], coupling=Independent())
    layer = opteq.Equilibrium(both, solver=Anderson(tol=1e-12), gradient=Implicit())
    g = torch.rand(4, 2, 2, 2, dtype=torch.float64) + 1
    found = layer_bounds(both, (2, 2, 2))
    exact = [w / (1 - w**2) for w in norms]
    assert found.lipschitz == pytest.approx(math.hypot(*exact))
    assert found.fused([1, 2]) == pytest.approx(exact[0] + 2 * exact[1])
    apart = float(stretch(lambda x: flat(layer(x)), g, stride=0).max())
    assert apart == pytest.approx(found.lipschitz, rel=1e-6)  # both bounds are reached
    together = float(stretch(lambda x: torch.add(*layer(x)), g, stride=0).max())
    assert together == pytest.approx(found.fused([1, 1]), rel=1e-6)
    # What holds with diversity too is larger, and equal where the norms are.
    joint = replace(found, each=None)
    root, rest = math.sqrt(2), 1 - max(norms) ** 2
    assert joint.lipschitz == pytest.approx(max(norms) * root / rest)
    assert joint.fused([1, 2]) == pytest.approx(math.hypot(norms[0], 2 * norms[1]) * root / rest)
    assert joint.fused([1, 1]) >= found.fused([1, 1]) * (1 - 1e-12)


@pytest.mark.parametrize("fusion", ["sum", "average"])
def test_fusion_of_branches_in_a_model(fusion):
    """From features to fused features: branches at 8, 4, 2 are copied by 1, 2, 4."""
    torch.manual_seed(0)
    model = classifier("mopteq_digits", certified=True, fusion=fusion)
    cert = certificate(model, input_shape=(1, 8, 8))
    (claim,) = [c for c in cert.claims if c.name.startswith("injections, equilibria")]
    own = layer_bounds(a(Single, model.body).layer.map, (24, 8, 8))
    copies = [n * w for n, w in zip((1, 2, 4), own.parts, strict=True)]
    expected = math.hypot(*copies) * own.driven / (3 if fusion == "average" else 1)
    assert claim.value == pytest.approx(expected)
    exact = precise(model)

    def fused(features):
        return exact.body(features)[0]

    features = torch.randn(4, 24, 8, 8, dtype=torch.float64)
    assert float(stretch(fused, features, rounds=10).max()) <= expected


def test_branches_contract_in_the_norm_of_the_largest_branch_only():
    """One sweep, in sequence, of equal scales: the 2-norm of a difference can grow."""
    W = Conv2d.from_weight(0.97 * torch.eye(3, dtype=torch.float64)[:, :, None, None], padding=0)
    both = Branches([Branch(W, W), Branch(W, W)], coupling=HeritageDiversity(0))
    g = torch.ones(1, 3, 2, 2, dtype=torch.float64)
    bound, zero = both.bind(g), torch.zeros(1, 3, 2, 2, dtype=torch.float64)
    one = torch.ones_like(zero)
    moved = [a - b for a, b in zip(bound((zero, one)), bound((zero, zero)), strict=True)]
    before = one.norm()
    assert flat(moved).norm() > before  # sqrt(1 + c^2) c with c = 0.94
    factor = layer_bounds(both).contraction
    assert factor == pytest.approx(0.97**2)
    assert max(float(m.norm()) for m in moved) <= factor * before * (1 + 1e-9)


def test_unrolled_layers_get_the_bound_of_their_steps():
    """One application stretches by |W|, which is more than the equilibrium can."""
    W = Dense.from_weight(0.95 * torch.eye(4, dtype=torch.float64))
    problem = Problem(penalty=NonNegative(), similarity=Gaussian(W, gamma=1e-3))
    torch.manual_seed(0)
    u = torch.rand(50, 4, dtype=torch.float64)
    for steps, damping in ((1, 1.0), (3, 0.5), (20, 1.0)):
        solver = Picard(damping=damping, on_failure="ignore")
        layer = opteq.Equilibrium(problem, solver=solver, gradient=Unrolled(steps=steps))
        bound = certificate(layer).lipschitz
        assert float(stretch(layer, u).max()) <= bound * (1 + 1e-9)
        factor = 1 - damping + damping * 0.95**2
        expected = damping * 0.95 * (1 - factor**steps) / (1 - factor)
        assert bound == pytest.approx(expected)
    once = opteq.Equilibrium(problem, solver=solver, gradient=Unrolled(steps=1))
    assert float(stretch(once, u).max()) > 1.2 * gaussian_lipschitz(0.95, parts=False)
    # Steps of other kinds have no bound, and the certificate says so.
    plain = ForwardBackward(accelerate=False)
    split = opteq.Equilibrium(problem, solver=plain, gradient=Unrolled(steps=5))
    assert certificate(split).lipschitz == math.inf


@pytest.mark.parametrize("steps", [1, 2, 30])
def test_unrolled_chains_and_linear_kernels(steps):
    torch.manual_seed(0)
    units = [Unit(Dense(4, 6, norm_bound=0.9), injection=torch.nn.Linear(4, 6)) for _ in range(2)]
    linear = Problem(penalty=NonNegative(), similarity=Linear(Dense(4, 4, norm_bound=0.9)))
    for hidden in (Chain(units), linear):
        solver, rule = Picard(on_failure="ignore"), Unrolled(steps=steps)
        layer = opteq.Equilibrium(hidden, solver=solver, gradient=rule).double()
        bound = certificate(layer).lipschitz
        solved = opteq.Equilibrium(layer.map, solver=Anderson()).double()
        assert bound <= certificate(solved).lipschitz * (1 + 1e-9)
        x = torch.randn(50, 4, dtype=torch.float64)
        assert 0.1 * bound < float(stretch(layer, x).max()) <= bound * (1 + 1e-9)


def test_monotone_equilibria_move_by_one_over_the_modulus():
    torch.manual_seed(0)
    A, B = (Dense.from_weight(torch.zeros(3, 3, dtype=torch.float64)) for _ in range(2))
    solver = ForwardBackward(tol=1e-12)
    layer = opteq.Equilibrium(Monotone(A, B, modulus=0.25), solver=solver, gradient=Implicit())
    assert certificate(layer).lipschitz == 4.0
    x = torch.rand(5, 3, dtype=torch.float64) + 1
    assert float(stretch(layer, x).max()) == pytest.approx(4.0, rel=1e-6)


def test_exact_copies_leave_the_model_alone():
    model = opteq.create_model("geq_digits")
    twin = precise(model)
    assert model.training
    assert next(model.parameters()).dtype == torch.float32
    (layer, *_), (own, *_) = (
        [m for m in net.modules() if isinstance(m, opteq.Equilibrium)] for net in (twin, model)
    )
    assert (layer.solver.tol, layer.gradient) == (1e-10, Implicit())
    assert replace(layer.solver, tol=own.solver.tol, max_steps=own.solver.max_steps) == own.solver
    deep = precise(opteq.create_model("opteq_digits"))
    assert all(
        m.gradient == Unrolled(steps=20) for m in deep.modules() if isinstance(m, opteq.Equilibrium)
    )


@pytest.mark.parametrize("certified", [True, False])
def test_margins_have_constants_of_their_own(certified):
    """Never more than sqrt(2) times the logits' constant, and right for the head itself."""
    torch.manual_seed(0)
    model = classifier("geq_digits", certified=certified, head_grid=2)
    if certified:
        weight = a(BoundedHead, model.head).operator.weight
    else:
        weight = a(PooledHead, model.head).weight
    norm = float(torch.linalg.matrix_norm(weight.detach().double(), 2))
    assert float(dense_norm(known(head_matrix(model.head)))) == pytest.approx(norm)
    slopes = a(Tensor, margin_lipschitz(model, 3 * norm))
    for i, j in ((0, 1), (4, 9)):
        apart = (weight[i] - weight[j]).detach().double().norm()
        assert float(slopes[i, j]) == pytest.approx(3 * float(apart), rel=1e-6)
    assert float(slopes.max()) <= math.sqrt(2) * 3 * norm
    logits = torch.randn(50, 10, dtype=torch.float64)
    labels = logits.argmax(1)
    plain = certified_radius(logits, labels, 3 * norm)
    assert bool((certified_radius(logits, labels, slopes) >= plain).all())


def test_heads_that_are_not_one_matrix_have_the_plain_constant():
    model = opteq.create_model("opteq_digits", head="convolutions")
    assert margin_lipschitz(model, 2.5) == 2.5


class BoundScaling(BoundMap):
    def __init__(self, factor: float, u: torch.Tensor) -> None:
        self.factor, self.u = factor, u

    def __call__(self, z: State) -> State:
        return self.factor * tensor(z) / 2 + self.u

    def start(self) -> State:
        return torch.zeros_like(self.u)

    def select(self, index: torch.Tensor) -> BoundMap:
        return BoundScaling(self.factor, self.u[index])

    def curvature(self) -> Curvature:
        return Curvature(-self.factor / 2, self.factor / 2)


class Scaling(EquilibriumMap):
    """T(z) = factor z / 2 + u, with a bound that its author brings."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor

    def bind(self, u: torch.Tensor, /) -> BoundMap:
        return BoundScaling(self.factor, u)

    def curvature(self) -> Curvature:
        return Curvature(-self.factor / 2, self.factor / 2)

    def bounds(self, norms=promised, input_shape=None) -> Bounds:
        found = Bounds.contracting(self.factor / 2, "by hand")
        return replace(found, driven=1 / (1 - self.factor / 2), how=("factor < 2", True, "by hand"))


class Silent(Scaling):
    """The same map, of which its author says the curvature alone."""

    def curvature(self) -> Curvature:
        return super().curvature()


class Steeper(Scaling):
    """Another map under the same bound."""

    def bind(self, u: torch.Tensor, /) -> BoundMap:
        return Scaling(1.9).bind(u)


def test_a_map_of_yours_brings_its_own_bound():
    found = certificate(opteq.Equilibrium(Scaling()))
    assert (found.contraction, found.lipschitz, found.unique) == (0.5, 2.0, True)
    assert "by hand" in str(found)
    # One that says its curvature alone has no more than follows from it.
    silent = certificate(opteq.Equilibrium(Silent()))
    assert (silent.contraction, silent.lipschitz, silent.unique) == (0.5, math.inf, True)
    # And one that computes something else has nothing.
    steeper = certificate(opteq.Equilibrium(Steeper()))
    assert (steeper.contraction, steeper.unique) == (math.inf, False)
    assert "Steeper.bind has no bound of its own: write `curvature`" in str(steeper)


def test_a_kernel_with_a_curvature_of_its_own_inherits_no_other_bound():
    class Twice(Gaussian):
        def bind(self, u: torch.Tensor) -> Any:
            return (2 * Gaussian(self.operator, 0.5)).bind(u)

        def curvature(self):
            return (2 * Gaussian(self.operator, 0.5)).curvature()

    W = Dense(4, 4, norm_bound=0.6)
    found = certificate(opteq.Equilibrium(Problem(NonNegative(), Twice(W))))
    assert found.contraction == pytest.approx(2 * 0.36)
    assert found.lipschitz == math.inf


def test_promised_bounds_are_never_below_measured_ones():
    torch.manual_seed(0)
    for kernel in (Gaussian, Linear):
        W = Dense(6, 6, norm_bound=0.9)
        with torch.no_grad():
            W.raw.mul_(0.5)
        hidden = Proximal(Problem(NonNegative(), kernel(W)))
        now, ever = layer_bounds(hidden, None), hidden.bounds()
        assert now.contraction < 0.5 * ever.contraction
        assert now.lipschitz < ever.lipschitz
        assert now.convexity > ever.convexity
