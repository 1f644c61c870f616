"""MOptEq: its coupling, its hidden objective and the paper's two propositions."""

import pytest
import torch
from torch import Tensor

import opteq
from narrow import a, known
from opteq.equilibrium import Branch, Branches
from opteq.errors import OptionError, ShapeError
from opteq.gradient import Implicit, OneStep, Unrolled
from opteq.operators import AveragePool, Conv2d, Dense
from opteq.problem import HeritageDiversity, Independent
from opteq.solve import Anderson, Picard, Status
from opteq.states import as_tuple
from opteq.theory import certificate

SIDES = (8, 4, 2)
EXACT = Anderson(tol=1e-12, max_steps=500)


def branches(sides=SIDES, norm=0.9, channels=4):
    made = []
    for side in sides:
        U = Conv2d(3, 5, norm_bound=None)
        if side < 8:
            U = U @ AveragePool(8 // side)
        made.append(Branch(Conv2d(channels, 5, norm_bound=norm), U, channels=5))
    return made


def model(coupling=None, sides=SIDES, **options):
    return Branches(branches(sides), coupling=coupling, **options).double()


def features(batch=3):
    return torch.randn(batch, 3, 8, 8, dtype=torch.float64)


def random_states(sides=SIDES):
    return tuple(torch.randn(2, 4, s, s, dtype=torch.float64) for s in sides)


@pytest.mark.parametrize("sides", [(4,), (4, 4), (4, 4, 4), (8, 4, 2), (8, 4, 4, 2, 8)])
@pytest.mark.parametrize("diversity", ["smooth", "sign", "none"])
@pytest.mark.parametrize("heritage", [True, False])
@pytest.mark.parametrize("resampling", ["average", "isometric"])
def test_proposition_1_pull_is_the_gradient_of_the_energy(sides, diversity, heritage, resampling):
    """h_i = 1/2 (P z_(i+1) + P'z_(i-1)) - weight/2 (diversity terms), P average pooling, P' its
    adjoint: by autograd on H and D (where the sign is constant, for diversity="sign")."""
    coupling = HeritageDiversity(0.3, diversity=diversity, heritage=heritage, resampling=resampling)
    states = tuple(z.requires_grad_() for z in random_states(sides))
    slopes = torch.autograd.grad(coupling.energy(states).sum(), states)
    for i, slope in enumerate(slopes):
        torch.testing.assert_close(coupling.pull(states, i), slope, rtol=0, atol=1e-12)


def test_diversity_is_the_paper_sum_over_pairs_of_channels():
    a, b = random_states((4, 4))
    found = HeritageDiversity(1.0, diversity="sign")._size(a, b)
    expected = torch.zeros(2, dtype=torch.float64)
    for k in range(4):
        for other in range(4):
            if k != other:
                expected += (a[:, k] * b[:, other]).sum((1, 2)).abs()
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "coupling",
    [HeritageDiversity(0.02), HeritageDiversity(0.02, resampling="isometric"), Independent()],
)
def test_proposition_1_equilibrium_satisfies_the_conditions_of_the_objective(coupling):
    """The equilibrium is a first-order stationary point of G: for y >= 0 the gradient of G's smooth
    part is 0 where y > 0 and not negative where y = 0."""
    made = model(coupling)
    layer = opteq.Equilibrium(made, solver=EXACT)
    g = features()
    with torch.no_grad():
        solution = layer.solve(g)
        bound = made.bind(g)
        ys = bound.activations(solution.state)
    assert bool(solution.converged.all())
    leaves = tuple(y.clone().requires_grad_() for y in ys)
    slopes = torch.autograd.grad(bound.objective_of(leaves).sum(), leaves)
    active = 0
    for y, slope in zip(ys, slopes, strict=True):
        assert float(slope[y > 0].abs().max()) < 1e-9
        assert float(slope[y == 0].min()) > -1e-9
        active += int((y > 0).sum())
    assert active > 50


def test_orders_have_the_same_equilibrium_and_sequential_needs_fewer_sweeps():
    g = features()
    states, sweeps = [], []
    for order in ("sequential", "simultaneous"):
        torch.manual_seed(1)
        layer = opteq.Equilibrium(
            model(HeritageDiversity(0.01), sides=(8, 8, 8), order=order),
            solver=Picard(tol=1e-10, max_steps=500),
        )
        with torch.no_grad():
            solution = layer.solve(g)
        states.append(solution.state)
        sweeps.append(float(solution.steps.double().mean()))
    for one, other in zip(*states, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-8)
    assert sweeps[0] < 0.8 * sweeps[1]


def test_smooth_diversity_converges_where_the_sign_stalls_and_says_so():
    g = features(6)
    outcomes = {}
    for diversity in ("smooth", "sign"):
        torch.manual_seed(2)
        coupling = HeritageDiversity(0.05, diversity=diversity)
        solver = Picard(tol=1e-10, max_steps=400, on_failure="ignore")
        with torch.no_grad():
            outcomes[diversity] = opteq.Equilibrium(
                model(coupling, sides=(8, 8, 8)), solver=solver
            ).solve(g)
    assert bool(outcomes["smooth"].converged.all())
    stalled = [s for s in outcomes["sign"].status if s is not Status.CONVERGED]
    assert stalled
    assert set(stalled) <= {Status.STALLED, Status.MAX_STEPS}


def test_independent_branches_are_separate_opteqs():
    made = model(Independent())
    layer = opteq.Equilibrium(made, solver=EXACT)
    g = features()
    with torch.no_grad():
        states = layer(g)
        for branch, state in zip(made.branches, states, strict=True):
            alone = Branches([a(Branch, branch)], coupling=Independent())
            single = opteq.Equilibrium(alone, solver=EXACT)
            torch.testing.assert_close(single(g)[0], state, rtol=0, atol=1e-10)


def test_gradients_equal_unrolled():
    results = []
    for rule in (Implicit(), Unrolled(steps=200)):
        torch.manual_seed(3)
        solver = rule.solver_or(None, EXACT)
        layer = opteq.Equilibrium(model(), solver=solver, gradient=rule)
        g = features().requires_grad_()
        a(Tensor, sum(z.pow(2).sum() for z in layer(g))).backward()
        results.append([g.grad, *(p.grad for p in layer.parameters())])
    for implicit, unrolled in zip(*results, strict=True):
        torch.testing.assert_close(implicit, unrolled, rtol=1e-6, atol=1e-9)


def test_one_step_gradient_points_the_same_way():
    grads = []
    for rule in (Implicit(), OneStep()):
        torch.manual_seed(3)
        layer = opteq.Equilibrium(model(), solver=EXACT, gradient=rule)
        a(Tensor, sum(z.pow(2).sum() for z in layer(features()))).backward()
        grads.append(torch.cat([known(p.grad).flatten() for p in layer.parameters()]))
    assert torch.nn.functional.cosine_similarity(*grads, dim=0) > 0.7


def opteq_branch(seed, size=6, hidden=7, inputs=5):
    torch.manual_seed(seed)
    W = Dense(size, hidden, norm_bound=0.9).double()
    U = Dense(inputs, hidden, norm_bound=1.0).double()
    return Branches([Branch(W, U)], coupling=Independent()).double()


def test_perturbation_is_the_best_in_its_box_at_fixed_state():
    """sign(U'y) maximises G(z; g - d) over |d| <= eps at fixed z: no corner does better."""
    made = opteq_branch(0)
    layer = opteq.Equilibrium(made, solver=EXACT)
    g = torch.randn(1, 5, dtype=torch.float64)
    with torch.no_grad():
        bound = made.bind(g)
        state = layer(g)
        (y,) = bound.activations(state)
        (delta,) = bound.reconstructed_perturbation(state, 0.1)
        best = made.bind(g - delta).objective_of((y,))
        for corner in range(32):
            signs = torch.tensor([1.0 if corner >> i & 1 else -1.0 for i in range(5)])
            other = made.bind(g - 0.1 * signs.double()).objective_of((y,))
            assert bool(other <= best + 1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_proposition_2_the_perturbation_moves_objective_or_state(seed):
    """For |W|, |U| <= 1: max(G(z'*; g - d) - G(z*; g), sqrt(N) eps |z'* - z*|) >=
    1/2 (eps |U'y*|_1 - N eps^2), d = eps sign(U'y*), N entries of g."""
    eps = 1e-3
    made = opteq_branch(seed)
    layer = opteq.Equilibrium(made, solver=EXACT)
    g = 3 * torch.randn(1, 5, dtype=torch.float64)
    with torch.no_grad():
        state = layer(g)
        bound = made.bind(g)
        (y,) = bound.activations(state)
        (delta,) = bound.reconstructed_perturbation(state, eps)
        moved = layer(g - delta)
        after = known(made.bind(g - delta).objective(moved))
        change = after - known(bound.objective(state))
        distance = 5**0.5 * eps * (moved[0] - state[0]).norm()
        slope = a(Branch, made.branches[0]).injection.adjoint(y).abs().sum()
    assert max(float(change), float(distance)) >= 0.5 * (eps * float(slope) - 5 * eps**2)


def test_perturbation_enhancement_is_for_training_only():
    map = model(perturbation=0.1)  # noqa: A001
    layer = opteq.Equilibrium(map, solver=Picard(tol=1e-3, on_failure="ignore"))
    g = features()
    with torch.no_grad():
        perturbed = layer.train()(g)
        plain = layer.eval()(g)
        map.perturbation = 0.0
        expected = layer.train()(g)
    for one, other in zip(plain, expected, strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(perturbed[1], plain[1])


def test_branches_that_do_not_fit_are_refused():
    with pytest.raises(OptionError, match="at least one"):
        Branches([])
    with pytest.raises(ShapeError, match="same number of channels"):
        HeritageDiversity().energy((torch.ones(1, 2, 4, 4), torch.ones(1, 3, 4, 4)))
    with pytest.raises(ShapeError, match="divide"):
        HeritageDiversity().energy((torch.ones(1, 2, 4, 4), torch.ones(1, 2, 3, 3)))


def test_perturbed_sweep_is_algorithm_2():
    """y_i = s(W_i h_i + U_i (g - d_(i-1)) + b_i), d_i = eps sign(U_i'y_i), d_0 = 0, by branches
    with the features themselves perturbed."""
    eps, g, states = 0.1, features(2), list(random_states())
    made = model(HeritageDiversity(0.02), perturbation=eps).train()
    found = made.bind(g)(tuple(states))
    delta = torch.zeros_like(g)
    for i, part in enumerate(made.branches):
        branch = a(Branch, part)
        h = made.coupling.pull(tuple(states), i)
        y = torch.relu(branch.operator(h) + branch.inject(g - delta))
        delta = eps * branch.injection.adjoint(y).sign()
        states[i] = branch.operator.adjoint(y)
        torch.testing.assert_close(found[i], states[i])


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_diversity_pushes_nearly_as_hard_as_the_sign_whatever_the_size_of_features(size):
    """And solves converge, and training statistics are those of evaluation."""
    torch.manual_seed(0)
    branches = [
        Branch(Conv2d(8, 6, norm_bound=0.95), Conv2d(4, 6, norm_bound=None), channels=6)
        for _ in range(3)
    ]
    coupling = HeritageDiversity(0.02)
    layer = opteq.Equilibrium(Branches(branches, coupling=coupling), solver=Anderson(tol=1e-6))
    features = size * torch.randn(16, 4, 8, 8)
    layer.train()
    for _ in range(3):
        layer(features)
    assert int(known(coupling.products).batches) == 3
    solution = layer.eval().solve(features)
    assert bool(solution.converged.all())
    ratio = solution.diagnostics["diversity over heritage"]
    sign = solution.diagnostics["with the sign"]
    assert bool((sign > 0.01).all())
    assert bool((ratio > sign / 2).all())
    assert bool((ratio <= sign * 1.001).all())
    # An absolute temperature is right for one size alone.
    blunt = HeritageDiversity(0.02, temperature=1.0, relative=False)
    push, _ = blunt.push_over_pull(as_tuple(solution.state))
    assert bool((push < sign / 2).all()) == (size < 1)


def test_two_passes_before_a_backward_pass_keep_their_own_temperature():
    torch.manual_seed(0)
    branches = [Branch(Conv2d(4, 4), Conv2d(2, 4), channels=4) for _ in range(2)]
    layer = opteq.Equilibrium(Branches(branches, coupling=HeritageDiversity(0.05)))
    small, large = (layer(s * torch.randn(4, 2, 6, 6)) for s in (0.1, 10.0))
    torch.stack([part.square().sum() for part in (*small, *large)]).sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in layer.parameters() if p.grad is not None)


def test_statistics_of_products_pass_over_what_is_not_finite():
    torch.manual_seed(0)
    coupling = HeritageDiversity(0.05)
    branches = [Branch(Conv2d(4, 4), Conv2d(2, 4), channels=4) for _ in range(2)]
    layer = opteq.Equilibrium(
        Branches(branches, coupling=coupling), solver=Anderson(on_failure="ignore")
    ).train()
    clean = torch.randn(4, 2, 6, 6)
    layer(clean)
    before = float(known(coupling.products).running)
    bad = clean.clone()
    bad[1, 0, 0, 0] = float("nan")
    layer(bad)
    layer(clean[:0])
    layer(torch.full_like(clean, float("nan")))
    now = known(coupling.products)
    assert int(now.batches) == 2
    assert float(now.running) == pytest.approx(before, rel=0.2)


def test_features_that_have_nothing_in_common_leave_numbers():
    """Where no product of channels differs from 0, nor does the temperature for them."""
    coupling = HeritageDiversity(0.02)
    branches = [Branch(Conv2d(4, 4), Conv2d(2, 4, norm_bound=1.0), channels=4) for _ in range(2)]
    layer = opteq.Equilibrium(Branches(branches, coupling=coupling)).train()
    with torch.no_grad():
        for branch in branches:
            known(branch.bias).fill_(-10.0)
    u = torch.randn(3, 2, 4, 4)
    assert bool(layer.solve(u).converged.all())
    assert bool(layer.eval().solve(u).converged.all())
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    assert certificate(layer, input_shape=(2, 4, 4)).contraction == 0
