"""A bound is given only for what it was written for."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import opteq
from narrow import a, classifier, known
from opteq.equilibrium import Affine, Branch, Branches, Chain, Monotone, Unit
from opteq.errors import LawError, NotConvergedWarning, NotProximalError, OptionError, ShapeError
from opteq.gradient import Implicit, Unrolled
from opteq.kernels import GammaRule, Gaussian, Linear, Measurement, Ridge
from opteq.models.bodies import Parallel, Single
from opteq.models.bounded import Bounded, SortedPairs
from opteq.models.heads import BoundedHead, PooledHead
from opteq.models.network import Classifier
from opteq.models.stems import BoundedStem
from opteq.operators import (
    AveragePool,
    Conv2d,
    Dense,
    DepthwiseSeparable,
    WeightedOperator,
    dense_matrix,
)
from opteq.penalties import Activation, LeakyReLU, NonNegative, Shrinkage, Tanh
from opteq.potentials import Huber
from opteq.potentials.potential import Bends, Pure
from opteq.problem import (
    Curvature,
    HeritageDiversity,
    Independent,
    InsideMap,
    Penalty,
    Problem,
    Similarity,
    SquaredNorm,
)
from opteq.problem.law_checks import check_similarity
from opteq.problem.penalty import Step
from opteq.solve import Anderson, ForwardBackward, Picard
from opteq.theory import certificate, precise, stretch
from opteq.theory.layers import head_lipschitz, module_lipschitz, unbounded
from opteq.theory.rates import plain_evaluations
from opteq.theory.robustness import (
    certified_radius,
    exact_radius,
    margin_lipschitz,
    robust_accuracy,
)

EYE = torch.eye(2, dtype=torch.float64)


class Residual(nn.Sequential):
    """A sequence by its class, x + f(x) by its forward."""

    def forward(self, input):
        return input + super().forward(input)


class Doubled(nn.Linear):
    def forward(self, input):
        return 2 * super().forward(input)


class Halved(nn.Module):
    """A module that brings its bound."""

    def forward(self, x):
        return x / 2

    def lipschitz(self):
        return 0.5


class Tripled(Halved):
    """And one that inherits it for something else."""

    def forward(self, x):
        return 3 * x


def fivefold(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return 5 * output


def dense(norm=0.9, **options):
    problem = Problem(penalty=NonNegative(), similarity=Gaussian(Dense(6, 6, norm_bound=norm)))
    return opteq.Equilibrium(problem, **options)


def test_subclasses_of_known_modules_are_not_taken_for_them():
    assert module_lipschitz(Residual(nn.Identity())) == math.inf
    assert module_lipschitz(nn.Sequential(Residual(nn.Identity()), nn.ReLU())) == math.inf
    assert module_lipschitz(Doubled(3, 3)) == math.inf
    assert "Residual" in unbounded(nn.Sequential(nn.ReLU(), Residual(nn.Identity())))
    assert unbounded(nn.ReLU()) == ""


def test_a_module_may_bring_its_bound_but_not_inherit_it_for_another_forward():
    linear = nn.Linear(2, 2)
    both = module_lipschitz(nn.Sequential(Halved(), linear))
    assert both == pytest.approx(0.5 * module_lipschitz(linear))
    assert module_lipschitz(Halved()) == 0.5
    assert module_lipschitz(Tripled()) == math.inf


def test_hooks_and_replaced_methods_are_seen():
    layer = nn.Linear(3, 3)
    assert math.isfinite(module_lipschitz(layer))
    handle = layer.register_forward_hook(fivefold)
    assert module_lipschitz(layer) == math.inf
    handle.remove()
    assert math.isfinite(module_lipschitz(layer))

    def forward(input: Tensor) -> Tensor:
        return 5 * input

    layer.forward = forward
    assert module_lipschitz(layer) == math.inf


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_both_kinds_of_weight_norm_are_seen():
    old = torch.nn.utils.weight_norm(nn.Conv2d(2, 2, 3))
    with torch.no_grad():
        a(Tensor, old.weight_g).mul_(100)  # `weight` follows at the next forward pass only
    assert module_lipschitz(old) == math.inf
    new = torch.nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 2, 3))
    assert module_lipschitz(new) == math.inf


def test_parametrised_operators_are_refused_where_their_bound_would_be_lost():
    layer = dense()
    operator = a(Gaussian, known(layer.problem).similarity).operator
    torch.nn.utils.parametrize.register_parametrization(operator, "raw", nn.Identity())
    with torch.no_grad():
        raw = a(nn.ModuleDict, operator.parametrizations)["raw"]
        a(Tensor, raw.original).mul_(100)
    with pytest.raises(OptionError, match="parametrised"):
        layer(torch.randn(2, 6))


def test_layers_that_compute_something_else_have_no_certificate():
    class Wider(opteq.Equilibrium):
        def forward(self, u, z0=None):
            return 10 * super().forward(u, z0)

    class Louder(Gaussian):
        def _bind(self, u):
            return super()._bind(10 * u)

    class Stretching(Dense):
        def forward(self, z):
            return 3 * super().forward(z)

    problem = Problem(penalty=NonNegative(), similarity=Gaussian(Dense(6, 6, norm_bound=0.9)))
    louder = Problem(penalty=NonNegative(), similarity=Louder(Dense(6, 6, norm_bound=0.9)))
    stretching = Problem(penalty=NonNegative(), similarity=Linear(Stretching(6, 6)))
    for layer in (
        Wider(problem),
        opteq.Equilibrium(louder),
        opteq.Equilibrium(stretching),
    ):
        found = certificate(layer)
        assert found.lipschitz == found.contraction == math.inf
        assert not found.unique
        assert "NO" in str(found)
    hooked = dense()
    assert certificate(hooked).unique
    operator = a(Gaussian, known(hooked.problem).similarity).operator
    operator.register_forward_hook(fivefold)
    assert not certificate(hooked).unique
    assert "Dense has a hook" in str(certificate(hooked))


def test_swapped_parts_of_a_model_are_seen():
    model = classifier("geq_digits", certified=True, head_grid=4, head_norm=10.0).eval()
    assert math.isfinite(certificate(model, input_shape=(1, 8, 8)).lipschitz)
    kept = model.stem
    model.stem = Residual(*a(nn.Sequential, kept))
    assert certificate(model, input_shape=(1, 8, 8)).lipschitz == math.inf
    model.stem = kept
    model.norm = Residual(nn.Identity())
    found = certificate(model, input_shape=(1, 8, 8))
    assert found.lipschitz == math.inf
    assert "Residual" in str(found)


def test_what_is_unknown_says_what_to_write():
    class Quartic(Similarity):
        def value(self, z, u):
            return -((z - u) ** 4).sum(1)

    class Blurred(Conv2d):
        def forward(self, z):
            return super().forward(z).abs()

    found = certificate(opteq.Equilibrium(Problem(NonNegative(), Quartic())))
    assert "Quartic.value has no bound of its own: write `curvature`" in str(found)
    assert found.summary().startswith("No uniqueness is proved")
    assert "Blurred.forward has no bound of its own: write `norm`" in unbounded(Blurred(2, 2))


@pytest.mark.parametrize("grid", [1, 2])
def test_a_head_with_a_constant_is_not_called_unbounded(grid):
    torch.manual_seed(0)
    model = classifier("geq_digits", head_grid=grid).eval()
    for shape, condition in (((1, 8, 8), "features of 4x4"), (None, "for any size")):
        (head,) = [c for c in certificate(model, input_shape=shape).claims if "head" in c.name]
        sized = shape is not None or grid == 1
        assert head.holds == sized
        assert head.condition == (condition if sized else "needs input_shape")


def test_a_change_of_variables_counts():
    """scale (1, 10): A^-1 W's W A stretches by up to ten times as much as W's W."""
    torch.manual_seed(0)
    scale = torch.tensor([1.0, 10.0] * 3)
    for seed in range(20):
        torch.manual_seed(seed)
        weight = torch.randn(6, 6, dtype=torch.float64)
        weight *= 0.81 / torch.linalg.matrix_norm(weight, 2)
        chain = Chain([Unit(Dense.from_weight(weight), change=Affine(scale=scale))]).double()
        layer = opteq.Equilibrium(chain, allow_uncertified=True)
        u = torch.randn(1, 6, dtype=torch.float64).abs() * 10
        z = torch.randn(6, dtype=torch.float64).abs()
        jacobian = torch.autograd.functional.jacobian(
            lambda v, chain=chain, u=u: chain.bind(u)(v[None])[0], z
        )
        steepest = float(torch.linalg.matrix_norm(jacobian, 2))
        assert steepest <= certificate(layer).contraction
        assert steepest <= chain.curvature().high
        assert certificate(layer).contraction == pytest.approx(6.561, rel=1e-6)


def test_one_scale_for_all_changes_nothing_and_a_rotation_that_is_none_counts():
    unit = Unit(Dense.from_weight(0.9 * torch.eye(3)), change=Affine(scale=7.0, shift=1.0))
    assert unit.lipschitz() == pytest.approx(0.81, rel=1e-6)
    stretched = Affine(rotation=Dense.from_weight(2 * torch.eye(3)))
    other = Unit(Dense.from_weight(0.9 * torch.eye(3)), change=stretched)
    assert other.lipschitz() == pytest.approx(3.24, rel=1e-6)


def sign_branches(diversity):
    torch.manual_seed(0)
    parts = [Branch(Conv2d(4, 4, norm_bound=0.9), Conv2d(2, 4)) for _ in range(3)]
    coupling = HeritageDiversity(0.01, diversity=diversity)
    return opteq.Equilibrium(
        Branches(parts, coupling=coupling), solver=Picard(on_failure="ignore"), gradient=Implicit()
    )


def test_nothing_is_certified_of_solves_that_stall_on_a_jump():
    """The paper's sign: the minimiser is unique, and no point is mapped onto itself."""
    found = certificate(sign_branches("sign"), input_shape=(2, 6, 6))
    assert not found.unique
    assert found.lipschitz == found.contraction == math.inf
    (claim,) = [c for c in found.claims if c.name.startswith("minimiser of G")]
    smooth = certificate(sign_branches("smooth"), input_shape=(2, 6, 6))
    assert smooth.unique
    assert claim.value == pytest.approx(smooth.lipschitz)
    assert not [c for c in smooth.claims if c.name.startswith("minimiser")]


def test_only_converged_answers_have_a_certified_radius():
    """Images for which the exact solve ends early, and a model without a constant."""
    torch.manual_seed(0)
    model = opteq.create_model("geq_digits", certified=True, head_grid=4, head_norm=10.0).eval()
    x = torch.rand(6, 1, 8, 8)
    labels = model(x).argmax(1).detach()
    found = robust_accuracy(model, [(x, labels)], (1e-6,), steps=1)
    assert found.unsolved == 0
    assert found.certified == (1.0,)
    x[2] = math.nan
    with pytest.warns(NotConvergedWarning):
        found = robust_accuracy(model, [(x, labels)], (1e-6,), steps=1)
    assert found.unsolved == 1
    assert found.certified == (5 / 6,)
    assert found.certified_radii[0] == 0
    x[2] = 0
    free = opteq.create_model("mopteq_digits", diversity="sign").eval()
    labels = free(x).argmax(1).detach()
    assert certificate(free, input_shape=(1, 8, 8)).lipschitz == math.inf
    assert exact_radius(free, x[:2], labels[:2]).tolist() == [0.0, 0.0]


def test_clean_accuracy_does_not_need_a_constant():
    torch.manual_seed(0)
    model = opteq.create_model("geq_digits").eval()
    model.norm = Residual(nn.Identity())
    x = torch.rand(6, 1, 8, 8)
    labels = precise(model)(x.double()).argmax(1)
    found = robust_accuracy(model, [(x, labels)], (0.1,), steps=1)
    assert (found.lipschitz, found.clean, found.certified) == (math.inf, 1.0, (0.0,))


@pytest.mark.parametrize("size", [(2, 8), (1, 8), (8, 2), (4, 12)])
def test_images_that_are_not_square(size):
    """Pooling 2x8 places by a 1x4 grid is another norm than that of 8x8."""
    torch.manual_seed(0)
    problem = Problem(penalty=NonNegative(), similarity=Linear(Conv2d(2, 2, 3, norm_bound=0.2)))
    body = Single(opteq.Equilibrium(problem), channels=2, parts=1, fusion="sum")
    head = BoundedHead(2, 3, 4, norm_bound=1.0)
    model = Classifier(
        nn.Sequential(Bounded(Conv2d(1, 2, 1, norm_bound=1.0), 2)),
        body,
        2,
        3,
        head=head,
        norm=nn.Identity(),
    ).eval()
    allowed = certificate(model, input_shape=(1, *size)).lipschitz
    x = 3 + torch.rand(20, 1, *size, dtype=torch.float64)
    found = float(stretch(precise(model), x, rounds=40).max())
    assert 0.02 * allowed < found <= allowed * (1 + 1e-9)


def test_a_stem_of_ours_is_still_bounded():
    assert module_lipschitz(BoundedStem(1, 4)) <= 1 + 1e-6


def test_trainable_activations_are_refused_and_a_learned_slope_is_kept():
    with pytest.raises(NotProximalError, match="parameters"):
        Activation(nn.PReLU())
    frozen = nn.PReLU().requires_grad_(False).double()
    activation = Activation(frozen)
    problem = Problem(penalty=activation, similarity=Linear(Dense(4, 4, norm_bound=0.9).double()))
    layer = opteq.Equilibrium(problem)
    found = certificate(layer)
    assert found.unique
    assert "SAMPLED" in str(found)
    frozen.weight.fill_(3.0)
    assert certificate(layer).contraction == math.inf
    assert "slopes from" in str(certificate(layer))
    learned = LeakyReLU(0.25, learned=True)
    for logit in (-200.0, -3.0, 0.0, 9.0, 200.0):
        learned.slope_logit.data.fill_(logit)
        assert 0 < float(a(Tensor, learned.negative_slope).detach()) <= 1
        found = certificate(
            opteq.Equilibrium(Problem(penalty=learned, similarity=Linear(Dense(4, 4))))
        )
        assert found.unique
        assert "SAMPLED" not in str(found)


@pytest.mark.parametrize("step", [1e-2, 1e-3, 1e-4, 1e-5])
def test_functions_with_small_jumps_are_no_prox(step):
    with pytest.raises(NotProximalError, match="slope"):
        Activation(lambda y: torch.round(y / step) * step)


def test_penalties_of_users_rest_on_a_sample():
    class Steep(Penalty):
        def value(self, z):
            return 0 * z

        def prox(self, v: Tensor, step: Step = 1.0) -> Tensor:
            return 2 * v

    class Half(Steep):
        def prox(self, v: Tensor, step: Step = 1.0) -> Tensor:
            return v / 2

    layers = [
        opteq.Equilibrium(Problem(penalty=p, similarity=Linear(Dense(4, 4))))
        for p in (Steep(), Half())
    ]
    assert not certificate(layers[0]).unique
    assert certificate(layers[1]).unique
    assert "Half is the prox of a penalty" in str(certificate(layers[1]))


def test_a_slope_changed_by_hand_is_seen():
    leaky = LeakyReLU(0.5)
    leaky.fixed_slope = 3.0
    layer = opteq.Equilibrium(Problem(penalty=leaky, similarity=Linear(Dense(4, 4))))
    assert certificate(layer).contraction == math.inf


def test_the_learned_slope_has_the_gradient_of_an_unrolled_solve():
    torch.manual_seed(0)
    W, u = Dense(5, 5, norm_bound=0.8).double(), torch.randn(3, 5, dtype=torch.float64)
    penalty = LeakyReLU(0.3, learned=True).double()
    problem = Problem(penalty=penalty, similarity=Linear(W))
    layer = opteq.Equilibrium(problem, solver=Picard(tol=1e-13, max_steps=500))
    (implicit,) = torch.autograd.grad(layer(u).square().sum(), penalty.slope_logit)
    z = torch.zeros(3, 5, dtype=torch.float64)
    for _ in range(200):
        z = problem.map(z, u)
    (unrolled,) = torch.autograd.grad(z.square().sum(), penalty.slope_logit)
    assert float(implicit) == pytest.approx(float(unrolled), rel=1e-9)
    assert abs(float(implicit)) > 1e-3


def small(name="geq_digits", **options):
    """A certified model in float64."""
    torch.manual_seed(0)
    settings = {"certified": True, "head_grid": 1, "head_norm": 10.0} | options
    return classifier(name, **settings).eval().double()


def jacobian_norm(function, x):
    """|J| at x by a dense matrix."""
    J = torch.autograd.functional.jacobian(lambda v: function(v[None])[0], x[0])
    return float(torch.linalg.matrix_norm(J.reshape(-1, x[0].numel()), 2))


def test_a_module_that_is_used_twice_counts_twice():
    layer = nn.Linear(4, 4, bias=False)
    layer.weight.data = 3 * torch.eye(4)
    assert module_lipschitz(nn.Sequential(layer, layer)) == pytest.approx(9)


def test_pooling_of_heads_inside_sequences_counts():
    """16 parts of 8 places repeat each place twice."""
    head = PooledHead(2, 10, grid=16)
    assert module_lipschitz(head) == math.inf
    assert module_lipschitz(nn.Sequential(nn.Identity(), head)) == math.inf
    assert head_lipschitz(head, (8, 8)) == pytest.approx(
        2 * float(torch.linalg.matrix_norm(head.weight.detach(), 2)), rel=1e-5
    )


def test_shapes_are_followed_through_modules_that_change_them():
    """A normalisation that takes every fourth place, injections that pool: what the head pools and
    what is copied is not what the model was built with."""
    square = (1, 8, 8)
    x = torch.rand(2, *square, dtype=torch.float64)
    models = []
    for edit in ("norm", "pooled norm", "injection", "strided injection"):
        model = small("opteq_single_digits", channels=2, widths=(2,), gradient="implicit")
        if edit == "norm":
            model.norm = nn.Conv2d(2, 2, 1, stride=4, bias=False).double()
            model.norm.weight.data.copy_(torch.eye(2)[..., None, None])
        elif edit == "pooled norm":
            model.norm = nn.Sequential(nn.BatchNorm2d(2), AveragePool(4)).eval().double()
        else:
            unit = a(Unit, a(Chain, a(Single, model.body).layer.map).units[0])
            pool = AveragePool(4) if edit == "injection" else AveragePool(2)
            unit.injection = nn.Sequential(pool, unit.injection)
        models.append(model)
    parallel = small(channels=2, middle=(2,), sides=(8,), split=2)
    injections = a(Parallel, parallel.body).injections
    injections[0] = nn.Sequential(AveragePool(4), injections[0])
    for model in (*models, parallel):
        for layer in model.modules():
            if isinstance(layer, WeightedOperator):  # all places alike, so that pooling tells
                layer.raw.data.zero_()
                places = layer.raw.data.view(*layer.raw.shape[:2], -1)
                rows, columns = layer.raw.shape[:2]
                places[:2, :2, places.shape[2] // 2] = EYE[:rows, :columns]
        allowed = certificate(model, input_shape=square).lipschitz
        found = jacobian_norm(precise(model), x[:1] + 1)
        assert found <= allowed * (1 + 1e-9)


def test_pairs_and_biases_do_not_copy_channels():
    with pytest.raises(ShapeError, match="cannot be paired"):
        SortedPairs()(torch.zeros(1, 3, 2, 2))
    with pytest.raises(ShapeError, match="bias has 16"):
        Bounded(Conv2d(4, 1, 1, norm_bound=1.0), 16)(torch.zeros(1, 4, 2, 2))
    branch = Branch(Conv2d(4, 16), Conv2d(4, 1), channels=16)
    with pytest.raises(ShapeError, match="bias has 16"):
        branch.inject(torch.zeros(1, 4, 2, 2))


def test_close_rows_of_a_head_do_not_cancel():
    model = small(channels=2, middle=(2,), sides=(8,), split=2, classes=30)
    matrix = torch.randn(30, 2, dtype=torch.float64)
    matrix[1] = matrix[0]
    matrix[1, 0] += 1e-12
    a(BoundedHead, model.head).operator = Dense.from_weight(matrix)
    slopes = a(Tensor, margin_lipschitz(model, 1.0))
    norm = float(torch.linalg.matrix_norm(matrix, 2))
    assert float(slopes[0, 1]) == pytest.approx(1e-12 / norm, rel=1e-3)


def test_equilibria_outside_of_the_body_are_certified_too():
    model = small(channels=2, middle=(2,), sides=(8,), split=2)
    assert certificate(model, input_shape=(1, 8, 8)).unique
    bad = Problem(penalty=Tanh(), similarity=Linear(2 * torch.eye(2).view(2, 2, 1, 1)))
    model.stem = nn.Sequential(model.stem, opteq.Equilibrium(bad, allow_uncertified=True)).double()
    found = certificate(model, input_shape=(1, 8, 8))
    assert not found.unique
    assert found.contraction > 1
    assert found.lipschitz == math.inf


def test_a_layer_that_is_used_twice_is_certified_twice():
    model = small(channels=4, middle=(4, 4), sides=(8, 4), split=2)
    layers = a(Parallel, model.body).layers
    layers[1] = layers[0]
    assert math.isfinite(certificate(model).lipschitz)
    x = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    assert exact_radius(model, x, model(x).argmax(1)).shape == (2,)


def test_radii_are_those_of_the_model_that_was_solved():
    """In bfloat16 the weights lie further below their bound than in the float64 that is solved in;
    and a user's absolute tolerance is no convergence."""
    torch.manual_seed(0)
    loose, model = (
        classifier("geq_digits", certified=True, head_norm=10.0, solver=solver).eval()
        for solver in (Anderson(tol=1e-3, atol=1e3), Anderson(tol=1e-3))
    )
    a(BoundedHead, model.head).bias.data.normal_(0, 0.01)  # or rounding would decide the class
    loose.load_state_dict(model.state_dict())
    x = torch.rand(4, 1, 8, 8)
    labels = precise(model)(x.double()).argmax(1)
    expected = exact_radius(model, x, labels)
    assert bool((expected > 0).all())
    torch.testing.assert_close(exact_radius(loose, x, labels), expected)
    half = copy.deepcopy(model).bfloat16()
    twin = precise(half)
    slopes = margin_lipschitz(twin, certificate(twin, input_shape=(1, 8, 8)).lipschitz)
    of_twin = certified_radius(twin(x.double()).detach(), labels, slopes)
    torch.testing.assert_close(exact_radius(half, x, labels), of_twin)


class Growing(GammaRule):
    def forward(self, distances):
        return self.factor / distances.mean() ** 4


class Backwards(Monotone):
    def product(self, z):
        return -5 * super().product(z)


class Overwriting(Penalty):
    """Its prox is tame, what the map applies is not."""

    def value(self, z):
        return 0 * z

    def prox(self, v, step=1.0):
        return v / 2

    def prox_(self, v):
        return 3 * v


class Negative(Gaussian):
    @property
    def gamma(self):
        return -1.0


class Pushing(HeritageDiversity):
    def _slope(self, M):
        return -9 * super()._slope(M)


class Steep(SquaredNorm):
    def gradient(self, z):
        return -50 * z


def test_what_subclasses_change_inside_is_seen():
    W = Dense(4, 4, norm_bound=0.9)
    branches = [Branch(Conv2d(4, 4), Conv2d(2, 4)) for _ in range(2)]
    cases = [
        Problem(penalty=NonNegative(), similarity=Gaussian(W, Growing())),
        Backwards(Dense(4, 4), Dense(4, 4)),
        Problem(penalty=Overwriting(), similarity=Gaussian(W)),
        Problem(penalty=NonNegative(), similarity=Negative(W)),
        Branches(branches, coupling=Pushing(0.01)),
        Chain([Unit(W)], regularizer=InsideMap(Steep(), weight=0.1)),
    ]
    for hidden in cases:
        found = certificate(
            opteq.Equilibrium(hidden, allow_uncertified=True), input_shape=(2, 4, 4)
        )
        assert not found.unique, hidden
        assert found.lipschitz == math.inf
        assert found.contraction == math.inf
    assert module_lipschitz(InsideMap(Steep(), weight=0.1)) == math.inf
    assert module_lipschitz(InsideMap(SquaredNorm(), weight=0.1)) == 1.0


def test_numbers_that_hands_have_put_out_of_range_are_seen():
    fixed = Dense.from_weight(1.2 * torch.eye(4))
    with pytest.raises(OptionError, match="cannot keep a norm bound"):
        fixed.norm_bound = 0.5
    kernel = Gaussian(Dense(4, 4, norm_bound=0.9), gamma=0.5)
    kernel.fixed_gamma = -1.0
    monotone = Monotone(Dense(4, 4), Dense(4, 4))
    monotone.modulus = -1.0
    broken = Monotone(Dense(4, 4), Dense(4, 4))
    a(Dense, broken.symmetric).raw.data.fill_(math.nan)
    for hidden in (Problem(penalty=NonNegative(), similarity=kernel), monotone, broken):
        found = certificate(opteq.Equilibrium(hidden, allow_uncertified=True))
        assert not found.unique
        assert found.lipschitz == found.contraction == math.inf
    unit = Unit(Dense.from_weight(0.1 * torch.eye(4)))
    unit.fixed_alpha = 1.9
    assert unit.lipschitz() == pytest.approx(1.9 * 0.01 + 0.9, rel=1e-5)
    operator = Conv2d.from_weight(torch.ones(1, 1, 3, 3))
    whole = operator.norm()
    operator.geometry = replace(operator.geometry, stride=(3, 3))
    assert operator.norm() < 0.5 * whole
    operator.geometry = replace(operator.geometry, stride=(1, 1))
    assert operator.norm() == whole
    separable = DepthwiseSeparable(2, 2)
    separable.factors[0] = Conv2d(2, 2, 3, norm_bound=2.0)
    true = float(torch.linalg.matrix_norm(dense_matrix(separable, (2, 6, 6)), 2))
    assert separable.norm() >= true


def test_extremes_end_in_numbers_not_in_errors():
    cases = [
        Chain([Unit(Dense(4, 4, norm_bound=0.5), alpha=1e-16)]),
        Problem(penalty=NonNegative(), similarity=Gaussian(Dense.from_weight(1e-200 * EYE))),
        Monotone(Dense.from_weight(1e200 * EYE), Dense.from_weight(EYE)),
    ]
    for hidden in cases:
        assert certificate(opteq.Equilibrium(hidden, allow_uncertified=True)).claims
    exploding = opteq.Equilibrium(
        Problem(penalty=NonNegative(), similarity=Linear(20 * EYE)),
        gradient=Unrolled(steps=400),
        allow_uncertified=True,
    )
    assert certificate(exploding).lipschitz == math.inf
    branches = [Branch(Conv2d.from_weight(torch.ones(2, 2, 1, 1)), AveragePool(1))]
    bare = Branches(branches, coupling=Independent())
    assert certificate(opteq.Equilibrium(bare, allow_uncertified=True), input_shape=(2, 4, 4))

    class Vector(Shrinkage):
        each: Tensor

        def __init__(self):
            super().__init__(0.1)
            self.register_buffer("each", torch.tensor([0.1, 0.2, 0.3, 0.4]))

        def prox(self, v, step=1.0):
            return torch.sign(v) * torch.relu(v.abs() - step * self.each)

    assert certificate(
        opteq.Equilibrium(Problem(penalty=Vector(), similarity=Linear(Dense(4, 4))))
    ).unique
    with pytest.raises(ShapeError, match="does not take images"):
        certificate(opteq.create_model("geq_digits"), input_shape=(3, 8, 8))


def promised(layer, solver, name):
    layer.solver = solver
    claims = [c for c in certificate(layer).claims if c.name.startswith(f"{name}: evaluations")]
    return claims[0].value if claims else None


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_promised_evaluations_are_those_of_the_solver_as_it_is(tol):
    """Its step follows the norm bounds, its damping and its start are its own."""
    quiet = {"tol": tol, "max_steps": 5000, "on_failure": "ignore"}
    far = Dense(4, 4, norm_bound=0.99).double()
    far.raw.data.copy_(0.1 * torch.eye(4))
    linear = opteq.Equilibrium(Problem(penalty=NonNegative(), similarity=Linear(far)))
    wide = Dense(4, 4, norm_bound=1.4).double()
    wide.raw.data.copy_(0.1 * torch.eye(4))
    gaussian = opteq.Equilibrium(
        Problem(penalty=NonNegative(), similarity=Gaussian(wide)), solver=ForwardBackward()
    )
    u = 1 + torch.rand(20, 4, dtype=torch.float64)
    kept = 0
    for layer in (linear, gaussian):
        for solver, name in (
            (ForwardBackward(accelerate=False, **quiet), "ForwardBackward, plain"),
            (ForwardBackward(**quiet), "ForwardBackward"),
            (Picard(**quiet), "Picard"),
            (Picard(damping=0.05, **quiet), "Picard"),
            (Anderson(**quiet), "Anderson, Broyden"),
        ):
            allowed = promised(layer, solver, name)
            if allowed is None:  # nothing is promised beyond the bounds
                assert layer is gaussian
                continue
            assert int(layer.solve(u).steps.max()) <= allowed
            kept += 1
    assert kept >= 9
    own_step = ForwardBackward(step=0.05, accelerate=False, **quiet)
    assert promised(linear, own_step, "ForwardBackward, plain") is None
    features = opteq.Equilibrium(Chain([Unit(Dense(4, 4))], start="features"))
    assert promised(features, Picard(**quiet), "Picard") is None


def test_norm_of_the_adjoint_of_a_swapped_operator():
    """A subclass may bring its own norm for its own forward."""

    class Twice(Dense):
        def forward(self, z):
            return 2 * super().forward(z)

        def adjoint(self, r):
            return 2 * super().adjoint(r)

        def tight_norm(self, weight):
            return 2 * super().tight_norm(weight)

    operator = Twice(3, 3, norm_bound=0.4)
    true = float(torch.linalg.matrix_norm(dense_matrix(operator, (3,)), 2))
    assert module_lipschitz(operator) >= true * (1 - 1e-6)


def test_hooks_around_every_module_are_seen():
    assert math.isfinite(module_lipschitz(nn.Linear(2, 2)))
    handle = nn.modules.module.register_module_forward_hook(lambda module, inputs, output: None)
    try:
        assert module_lipschitz(nn.Linear(2, 2)) == math.inf
        assert not certificate(dense()).unique
    finally:
        handle.remove()


class Repelling(Similarity):
    """S = <u, z> - 1.5 |z|^2: bent downwards everywhere."""

    def value(self, z, u):
        return (u * z).sum(1) - 1.5 * z.square().sum(1)

    def curvature(self):
        return Curvature(-3.0, -3.0)


def test_where_the_prox_is_flat_the_system_of_a_gradient_is_the_identity():
    """So its eigenvalues reach from 1 to 4, and not from 4 to 4."""
    layer = opteq.Equilibrium(
        Problem(penalty=Tanh(), similarity=Repelling()), solver=ForwardBackward()
    )
    (claim,) = [c for c in certificate(layer).claims if c.name.startswith("conjugate gradients")]
    assert claim.condition == "condition number 4"
    assert claim.value > 1


def test_branches_are_promised_steps_in_the_norm_that_solves_stop_by():
    """They contract in the norm of the largest, which may be 1/sqrt(3) of the 2-norm."""
    layer = sign_branches("none")
    found = certificate(layer, input_shape=(2, 6, 6))
    c, tol = found.contraction, layer.solver.tol
    error = tol / (1 + c + c * tol)
    assert promised(layer, layer.solver, "Picard") == plain_evaluations(c, error / math.sqrt(3))


class Disguised(Huber):
    """Solves call another slope than the one that its bounds are of."""

    def bends(self):
        return Bends(0.0, 1.0)

    def pure(self):
        return Pure(lambda t: 5 * t, lambda t: 5 * torch.ones_like(t))


def test_bounds_are_of_the_slope_that_solves_call():
    prior = Ridge(Conv2d(1, 2, 3, norm_bound=0.9), Disguised())
    hidden = Problem(penalty=NonNegative(), similarity=Measurement() + prior)
    found = certificate(opteq.Equilibrium(hidden, allow_uncertified=True))
    assert not found.unique
    assert found.lipschitz == math.inf


class Waving(Similarity):
    """<u, z> + a sum cos z, whose Hessian lies within [-a, a]."""

    def __init__(self, says=0.5):
        super().__init__()
        self.says = says

    def value(self, z, u):
        return (u * z).sum(1) + 0.5 * torch.cos(z).sum(1)

    def curvature(self):
        return Curvature(-self.says, self.says)


class Bowl(Similarity):
    """c |z|^2 / 2 + <u, z>: all eigenvalues of the Hessian are c."""

    def __init__(self, c):
        super().__init__()
        self.c = c

    def value(self, z, u):
        return self.c * z.square().sum(1) / 2 + (u * z).sum(1)

    def curvature(self):
        return Curvature(self.c, self.c)


def test_what_a_class_states_is_said_to_be_stated_and_can_be_tried():
    found = certificate(opteq.Equilibrium(Problem(NonNegative(), Waving())))
    assert found.unique
    (claim,) = [one for one in found.claims if "Waving" in one.name]
    assert claim.name == "Waving.curvature is right"
    assert "STATED" in claim.condition
    z, u = torch.randn(3, 8).double(), torch.randn(3, 8).double()
    check_similarity(Waving(), z, u)
    with pytest.raises(LawError, match="The Hessian bends from"):
        check_similarity(Waving(0.2), z, u)
    for curvature in (-1.0, 0.0, 0.3, 1e3):
        check_similarity(Bowl(curvature), z, u)
        check_similarity(Bowl(curvature), z[:, :1], u[:, :1])
    plain = certificate(opteq.Equilibrium(Problem(NonNegative(), Linear(Dense(4, 4)))))
    assert not any("STATED" in one.condition for one in plain.claims)
