"""The statements of the OptEq paper, one test each; where the paper errs, the corrected one."""

import itertools

import cvxpy
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import opteq
from narrow import a, known, tensor
from opteq.equilibrium import Affine, BoundChain, Chain, Unit, embed_feedforward, universal_units
from opteq.errors import OptionError
from opteq.operators import Dense
from opteq.penalties import Activation, NonNegative, Tanh
from opteq.problem import AbsoluteNorm, InsideMap, Penalty, SquaredNorm
from opteq.solve import SAM, Anderson, solve
from opteq.theory.training_premises import training_premises

EXACT = Anderson(tol=1e-13, max_steps=2000)
SETTINGS = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}


def random_units(count, *, size=5, hidden=4, alpha=1.0, norm=0.9):
    """Units of dense weights with constant injections, and (W, u) of each as arrays."""
    units, raw = [], []
    for _ in range(count):
        W = torch.randn(hidden, size, dtype=torch.float64)
        W *= norm / torch.linalg.matrix_norm(W, 2)
        injection = nn.Linear(2, hidden, dtype=torch.float64)
        units.append(Unit(Dense.from_weight(W), injection=injection, alpha=alpha))
        raw.append((W.numpy(), injection))
    return units, raw


def injections(raw, x):
    return [(W, injection(x).detach().numpy()[0]) for W, injection in raw]


@pytest.mark.parametrize("seed", range(5))
def test_theorem_1_the_equilibrium_minimises_phi(seed):
    """The fixed point of f(z) = W's(Wz + Ux + b), |W| <= 1, is the minimiser of
    phi(z) = psi*(z) - |z|^2/2. For ReLU: z = W'y with y the solution of the quadratic program
    min 1/2 y'(I - WW')y - c'y over y >= 0."""
    torch.manual_seed(seed)
    units, raw = random_units(1)
    x = torch.randn(1, 2, dtype=torch.float64)
    state = opteq.Equilibrium(Chain(units), solver=EXACT)(x).detach()[0].numpy()
    (W, u), *_ = injections(raw, x)
    y = cvxpy.Variable(len(u), nonneg=True)
    root = np.linalg.cholesky(np.eye(len(u)) - W @ W.T)
    cost = cvxpy.sum_squares(root.T @ y) / 2 - u @ y
    cvxpy.Problem(cvxpy.Minimize(cost)).solve(solver=cvxpy.CLARABEL, **SETTINGS)
    assert np.abs(state - W.T @ y.value).max() < 1e-6


def test_theorem_1_the_unit_is_the_prox_of_phi():
    """f = prox_phi: f(z) minimises phi(x) + |x - z|^2/2, in y: 1's~*(y) - <u + Wz, y>."""
    units, raw = random_units(1)
    x, z = torch.randn(1, 2, dtype=torch.float64), torch.randn(1, 5, dtype=torch.float64)
    moved = Chain(units).bind(x)(z).detach()[0].numpy()
    (W, u), *_ = injections(raw, x)
    y = cvxpy.Variable(len(u), nonneg=True)
    cost = cvxpy.sum_squares(y) / 2 - (u + W @ z[0].numpy()) @ y
    cvxpy.Problem(cvxpy.Minimize(cost)).solve(solver=cvxpy.CLARABEL, **SETTINGS)
    assert np.abs(moved - W.T @ y.value).max() < 1e-6


@pytest.mark.parametrize("alpha", [0.3, 0.8])
def test_table_1_skip_connection_keeps_the_equilibrium(alpha):
    """Replacing phi by its Moreau envelope adds the skip connection and moves no equilibrium."""
    torch.manual_seed(1)
    plain, _ = random_units(1)
    skipping = Unit(plain[0].operator, injection=plain[0].injection, alpha=alpha)
    x = torch.randn(3, 2, dtype=torch.float64)
    expected = opteq.Equilibrium(Chain(plain), solver=EXACT)(x)
    torch.testing.assert_close(opteq.Equilibrium(Chain([skipping]), solver=EXACT)(x), expected)


def test_table_1_change_of_variables():
    """With A(z) = scale R z + shift the equilibrium becomes A^-1 of the plain one."""
    plain, _ = random_units(1)
    rotation = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64)).Q
    change = Affine(rotation=Dense.from_weight(rotation), scale=1.7, shift=0.3).double()
    changed = Unit(plain[0].operator, injection=plain[0].injection, change=change)
    x = torch.randn(3, 2, dtype=torch.float64)
    expected = opteq.Equilibrium(Chain(plain), solver=EXACT)(x)
    found = opteq.Equilibrium(Chain([changed]), solver=EXACT)(x)
    torch.testing.assert_close(change(found), expected)


def test_table_1_multivariate_activation():
    """W'S(Wz + u) with S = R'R: the equilibrium solves the linear system of a quadratic phi."""
    plain, raw = random_units(1)
    mixing = Dense(4, 4, norm_bound=0.9).double()
    unit = Unit(plain[0].operator, injection=plain[0].injection, mixing=mixing)
    x = torch.randn(1, 2, dtype=torch.float64)
    found = opteq.Equilibrium(Chain([unit]), solver=EXACT)(x).detach()[0].numpy()
    (W, u), *_ = injections(raw, x)
    R = mixing.weight.detach().numpy()
    S = R.T @ R
    exact = np.linalg.solve(np.eye(5) - W.T @ S @ W, W.T @ S @ u)
    assert np.abs(found - exact).max() < 1e-9


@pytest.mark.parametrize("alpha", [0.4, 0.8])
def test_corollary_1_two_units_minimise_two_envelopes_and_their_distance(alpha):
    """z_0 and z_1 = f_1(z_0) minimise the sum of alpha M_phi_l^(1-alpha) and |z_1 - z_0|^2/2."""
    units, raw = random_units(2, alpha=alpha)
    x = torch.randn(1, 2, dtype=torch.float64)
    chain = Chain(units)
    state = opteq.Equilibrium(chain, solver=EXACT)(x).detach()
    middle = chain.bind(x).layers(state)[0].detach()
    points = [cvxpy.Variable(5) for _ in range(2)]
    cost = cvxpy.sum_squares(points[0] - points[1]) / 2
    for (W, u), p in zip(injections(raw, x), points, strict=True):
        y = cvxpy.Variable(len(u), nonneg=True)
        root = np.linalg.cholesky(np.eye(len(u)) - W @ W.T)
        inner = cvxpy.sum_squares(root.T @ y) / 2 - u @ y
        cost += alpha * (inner + cvxpy.sum_squares(W.T @ y - p) / (2 * (1 - alpha)))
    problem = cvxpy.Problem(cvxpy.Minimize(cost))
    problem.solve(solver=cvxpy.CLARABEL, **SETTINGS)
    assert np.abs(middle[0].numpy() - points[0].value).max() < 1e-5
    assert np.abs(state[0].numpy() - points[1].value).max() < 1e-5
    # The chain's own objective is that minimum, and is not lower along the iteration.
    bound, least = chain.bind(x), a(float, problem.value)
    assert float(known(bound.objective(state)).detach()) == pytest.approx(least, abs=1e-7)
    for scale in (0.1, 1.0):
        other = state + scale * torch.randn_like(state)
        assert float(known(bound.objective(other)).detach()) > least


def test_theorem_3_small_alpha_tends_to_the_wide_problem():
    """As alpha -> 0 the equilibrium tends to the solution of L z = sum of W_i's(W_i z + u_i), and
    the distance shrinks in proportion to alpha."""
    distances = []
    for alpha in (0.08, 0.04, 0.02):
        torch.manual_seed(3)
        units, _ = random_units(3, alpha=alpha)
        x = torch.randn(1, 2, dtype=torch.float64)
        chain = Chain(units)
        deep = opteq.Equilibrium(chain, solver=EXACT)(x).detach()
        z = torch.zeros_like(deep)
        bound = [unit.bind(x) for unit in units]
        with torch.no_grad():
            for _ in range(3000):
                z = sum(b.unit.operator.adjoint(b.activate(z)) for b in bound) / 3
        distances.append(float((deep - z).norm()))
    ratios = [a / b for a, b in itertools.pairwise(distances)]
    assert all(1.8 < ratio < 2.2 for ratio in ratios), ratios


@pytest.mark.parametrize(
    ("regularizer", "form"),
    [(SquaredNorm(), "gradient"), (SquaredNorm(), "prox"), (AbsoluteNorm(), "prox")],
)
def test_theorem_4_regularizer_inside_the_map(regularizer, form):
    """z = f(z - gamma grad R(z)) minimises phi + gamma R. The paper claims the same of
    z = f(prox_{gamma R}(z)); that minimises phi + the Moreau envelope of gamma R, which is Huber's
    function for the 1-norm and |z|^2 gamma / (2 + 2 gamma) for the square."""
    gamma = 0.3
    units, raw = random_units(1)
    chain = Chain(units, regularizer=InsideMap(regularizer, weight=gamma, form=form))
    x = 3 * torch.randn(1, 2, dtype=torch.float64)
    state = opteq.Equilibrium(chain, solver=EXACT)(x).detach()[0].numpy()
    (W, u), *_ = injections(raw, x)

    def minimise(term):
        y = cvxpy.Variable(len(u), nonneg=True)
        root = np.linalg.cholesky(np.eye(len(u)) - W @ W.T)
        cost = cvxpy.sum_squares(root.T @ y) / 2 - u @ y + term(W.T @ y)
        cvxpy.Problem(cvxpy.Minimize(cost)).solve(solver=cvxpy.CLARABEL, **SETTINGS)
        return W.T @ y.value

    absolute = isinstance(regularizer, AbsoluteNorm)
    printed = minimise(lambda z: gamma * (cvxpy.norm1(z) if absolute else cvxpy.sum_squares(z) / 2))
    if form == "gradient":
        assert np.abs(state - printed).max() < 1e-6
        return
    envelope = minimise(
        lambda z: (
            gamma**2 * cvxpy.sum(cvxpy.huber(z / gamma)) / 2
            if absolute
            else gamma / (1 + gamma) * cvxpy.sum_squares(z) / 2
        )
    )
    assert np.abs(state - envelope).max() < 1e-6
    assert np.abs(state - printed).max() > 1e-3


def random_net(seed: int, activation: type[nn.Module] = nn.ReLU):
    torch.manual_seed(seed)
    widths = [int(w) for w in torch.randint(2, 8, (int(torch.randint(3, 6, ())),))]
    modules = []
    for before, after in itertools.pairwise(widths):
        modules += [nn.Linear(before, after), activation()]
    net = nn.Sequential(*modules[:-1]).double()
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(2)
    return net, torch.randn(6, widths[0], dtype=torch.float64)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.Sigmoid, nn.ELU])
def test_lemma_1_any_network_is_made_of_units(activation):
    """Without changing the output, any feed-forward network can be written with units
    W's(Wz + Ux + b): relative error 1e-10 on 20 random networks."""
    for seed in range(20):
        net, x = random_net(seed, activation)
        chain, readout = universal_units(net)
        bound = chain.bind(x)
        with torch.no_grad():
            output = readout(bound(bound.start()))
            assert float((output - net(x)).norm() / net(x).norm()) < 1e-10


@pytest.mark.parametrize("alpha", [0.5, 0.8, 1.0])
def test_lemma_2_any_relu_network_is_a_deep_opteq(alpha):
    """The equilibrium of 2L units has the network's output: relative error 1e-10 on 20 random
    networks, and the chain is a contraction."""
    for seed in range(20):
        net, x = random_net(seed, nn.LeakyReLU if seed % 4 == 3 else nn.ReLU)
        chain, readout = embed_feedforward(net, alpha=alpha)
        assert chain.curvature().contraction < 1
        solver = Anderson(tol=1e-15, max_steps=300, on_failure="ignore")
        with torch.no_grad():
            output = readout(opteq.Equilibrium(chain, solver=solver)(x))
            assert float((output - net(x)).norm() / net(x).norm()) < 1e-10


def test_theorem_5_sam_picks_the_equilibrium_of_least_r():
    """T(z) = relu(z - 1) + 1 leaves every z >= 1 where it is. SAM tends to the one of least norm,
    and plain iteration stays where it started."""
    eye = torch.eye(3, dtype=torch.float64)
    unit = Unit(Dense.from_weight(eye), injection=nn.Identity(), change=Affine(shift=-1.0).double())
    x = torch.zeros(2, 3, dtype=torch.float64)
    start = 5 * torch.ones_like(x)
    plain = opteq.Equilibrium(Chain([unit]), solver=Anderson(), allow_uncertified=True)
    assert torch.equal(plain(x, start), start)
    solver = SAM(regularizer=SquaredNorm(), max_steps=5_000, tol=2e-2)
    with torch.no_grad():
        chosen = opteq.Equilibrium(Chain([unit]), solver=solver).solve(x, start)
    assert bool(chosen.converged.all())
    assert chosen.steps.tolist() == [5_000] * 2
    # Constant small steps would leave a bias; this schedule's falls like its last step.
    assert float((tensor(chosen.state) - 1).abs().max()) < 2e-2


def test_units_train_with_learned_alpha_and_stay_proximal():
    unit = Unit(
        Dense(4, 3, norm_bound=0.9), injection=nn.Linear(2, 3), penalty=Tanh(), alpha="learned"
    )
    layer = opteq.Equilibrium(Chain([unit, Unit(Dense(4, 3), injection=nn.Linear(2, 3))]))
    layer(torch.randn(8, 2)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())
    assert 0 < a(Tensor, unit.alpha).item() < 1
    assert isinstance(a(Chain, layer.map).units[1].penalty, NonNegative)


def three_units(alpha: float) -> tuple[BoundChain, torch.Tensor]:
    """A chain of three units with features, and its equilibrium."""
    torch.manual_seed(0)
    made = [
        Unit(
            Dense.from_weight(0.9 * torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64))[0]),
            injection=nn.Linear(4, 6).double(),
            alpha=alpha,
        )
        for _ in range(3)
    ]
    bound = Chain(made).bind(torch.randn(5, 4, dtype=torch.float64))
    found = solve(bound, bound.start(), Anderson(tol=1e-14, max_steps=500, on_failure="ignore"))
    return bound, tensor(found.state).detach()


@torch.no_grad()
def test_lemma_3_a_deep_chain_is_one_wide_layer_with_a_permutation():
    bound, z = three_units(0.7)
    blocks = bound.blocks(z)
    assert len(blocks) == 3
    assert float(bound.block_residual(blocks).max()) < 1e-12
    # As printed, with z~ for P z~ inside of the activation, it does not hold.
    shifted = (blocks[-1], *blocks[:-1])
    printed = [
        0.7 * unit.unit.operator.adjoint(unit.activate(own)) + 0.3 * other - own
        for unit, own, other in zip(bound.units, blocks, shifted, strict=True)
    ]
    assert float(torch.cat(printed, 1).norm(dim=1).max()) > 0.01
    # And nothing but an equilibrium solves it.
    moved = tuple(block + 0.1 * torch.randn_like(block) for block in blocks)
    assert float(bound.block_residual(moved).min()) > 0.01


@torch.no_grad()
def test_theorem_2_holds_for_more_than_two_units():
    bound, z = three_units(0.7)
    found = bound.inclusion(bound.blocks(z))
    assert max(float(part.abs().max()) for part in found) < 1e-11
    one, at = three_units(1.0)
    with pytest.raises(OptionError, match="alpha below 1"):
        one.inclusion(one.blocks(at))


@torch.no_grad()
def test_the_gradient_of_an_envelope_is_that_of_its_values():
    """v - p, against differences of the envelope's values along outputs of the unit."""
    bound, z = three_units(0.6)
    unit, h = bound.units[1], 1e-5
    direction = torch.randn_like(z)
    ends = [z + h * direction, z - h * direction]
    rise = unit.envelope(ends[0]) - unit.envelope(ends[1])
    way = unit(ends[0]) - unit(ends[1])
    expected = ((z - unit(z)) * way).sum(1)
    torch.testing.assert_close(rise, expected, rtol=1e-4, atol=1e-12)


def test_premises_of_theorem_6_are_looked_at_one_by_one():
    def premises(weight: torch.Tensor, penalty: Penalty) -> dict[str, bool]:
        chain = Chain([Unit(Dense.from_weight(weight), penalty=penalty)])
        return {claim.name: claim.holds for claim in training_premises(chain, (5,))}

    full = 0.9 * torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64))[0]
    flat = full.clone()
    flat[0] = 0
    smooth = premises(full, Activation(lambda v: 0.5 * v + 0.4 * torch.tanh(v)))
    assert all(smooth.values())
    relu = premises(full, NonNegative())
    assert not relu["least slope of the activation"]
    assert not relu["largest change of its slope, per unit"]
    assert not premises(flat, Tanh())["least singular value of the W_l"]
    assert not premises(1.2 * full, Tanh())["fixed points exist and are bounded"]
