"""A bound is given only for what it was written for."""

import math

import pytest
import torch
from torch import nn

import opteq
from opteq.equilibrium import Affine, Branch, Branches, Chain, Unit
from opteq.errors import NotConvergedWarning, NotProximalError, OptionError
from opteq.gradient import Implicit
from opteq.models.bounded import Bounded, BoundedHead, BoundedStem
from opteq.models.classifier import Classifier, Single
from opteq.operators import Conv2d, Dense, dense_matrix
from opteq.problem import (
    Activation,
    Gaussian,
    HeritageDiversity,
    LeakyReLU,
    Linear,
    NonNegative,
    Penalty,
    Problem,
)
from opteq.solve import Picard
from opteq.theory import certificate, precise, stretch
from opteq.theory.modules import module_lipschitz, unbounded
from opteq.theory.robustness import exact_radius, robust_accuracy


class Residual(nn.Sequential):
    """A sequence by its class, x + f(x) by its forward."""

    def forward(self, x):
        return x + super().forward(x)


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


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
    assert module_lipschitz(nn.Sequential(Halved(), nn.Linear(2, 2))) == pytest.approx(
        0.5 * module_lipschitz(nn.Linear(2, 2)), rel=10
    )
    assert module_lipschitz(Halved()) == 0.5
    assert module_lipschitz(Tripled()) == math.inf


def test_hooks_and_replaced_methods_are_seen():
    layer = nn.Linear(3, 3)
    assert math.isfinite(module_lipschitz(layer))
    handle = layer.register_forward_hook(lambda module, inputs, output: 5 * output)
    assert module_lipschitz(layer) == math.inf
    handle.remove()
    assert math.isfinite(module_lipschitz(layer))
    layer.forward = lambda x: 5 * x
    assert module_lipschitz(layer) == math.inf


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_both_kinds_of_weight_norm_are_seen():
    old = torch.nn.utils.weight_norm(nn.Conv2d(2, 2, 3))
    with torch.no_grad():
        old.weight_g.mul_(100)  # `weight` follows at the next forward pass only
    assert module_lipschitz(old) == math.inf
    new = torch.nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 2, 3))
    assert module_lipschitz(new) == math.inf


def test_parametrised_operators_are_refused_where_their_bound_would_be_lost():
    layer = dense()
    operator = layer.map.problem.similarity.operator
    torch.nn.utils.parametrize.register_parametrization(operator, "raw", nn.Identity())
    with torch.no_grad():
        operator.parametrizations.raw.original.mul_(100)
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
    operator = hooked.map.problem.similarity.operator
    operator.register_forward_hook(lambda module, inputs, output: 5 * output)
    assert not certificate(hooked).unique
    assert "Dense has a hook" in str(certificate(hooked))


def test_swapped_parts_of_a_model_are_seen():
    model = opteq.create_model("geq_digits", certified=True, head_grid=4, head_norm=10.0).eval()
    assert math.isfinite(certificate(model, input_shape=(1, 8, 8)).lipschitz)
    kept = model.stem
    model.stem = Residual(*kept)
    assert certificate(model, input_shape=(1, 8, 8)).lipschitz == math.inf
    model.stem = kept
    model.norm = Residual(nn.Identity())
    found = certificate(model, input_shape=(1, 8, 8))
    assert found.lipschitz == math.inf
    assert "Residual" in str(found)


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
        assert 0 < float(learned.negative_slope.detach()) <= 1
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

        def prox(self, v, step=1.0):
            return 2 * v

    class Half(Steep):
        def prox(self, v, step=1.0):
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
