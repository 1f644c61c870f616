"""Networks that cannot stretch: each layer against its dense Jacobian, the whole against attack."""

import math
from typing import get_args

import pytest
import torch
from PIL import Image
from torch.nn import functional

import opteq
from narrow import known, tensor
from opteq.errors import NotConvergedWarning, OptionError, ShapeError
from opteq.evaluation.predict import Prediction, read_for
from opteq.gradient import Unrolled
from opteq.kernels import Gaussian, Measurement, Ridge
from opteq.models.norm_keeping import (
    AlmostOrthogonal,
    CayleyConvolution,
    ConvexPotential,
    Pooled,
    Reflection,
    Rescaled,
    SDPBased,
    ToDepth,
    UnitRows,
    Widened,
)
from opteq.models.stack import LayerKind, PotentialKind, stack
from opteq.operators import Dense
from opteq.penalties import Free
from opteq.potentials import Ramp, Welsch
from opteq.problem import Problem
from opteq.solve import Anderson, ForwardBackward, Nesterov
from opteq.theory.layers import module_lipschitz
from opteq.theory.robustness import (
    exact_radius,
    predicted_radius,
    robust_accuracy,
    solve_error,
)
from opteq.theory.stretch import precise, stretch

SIDE = 6


def jacobian(layer, z):
    """(entries out, entries in) at one image."""
    found = torch.autograd.functional.jacobian(lambda x: layer(x[None])[0].flatten(), z[0])
    assert isinstance(found, torch.Tensor)
    return found.flatten(1)


def random_layers():
    """Each with weights far from where training starts."""
    torch.manual_seed(0)
    reflections = stack(channels=(4,), depth=(1,), side=SIDE, first=1)
    layers = [
        ConvexPotential(4, 6),
        AlmostOrthogonal(4, 6),
        SDPBased(4, 6),
        CayleyConvolution(4),
        precise(reflections).layers[1],  # of norm 10
        ToDepth(2),
        Widened(7),
        Pooled(2),
    ]
    for layer in layers:
        layer.double()
        for weight in layer.parameters():
            weight.data = 5 * torch.randn_like(weight)
    return layers


@pytest.mark.parametrize("layer", random_layers(), ids=lambda layer: type(layer).__name__)
def test_no_layer_stretches_whatever_its_weights(layer):
    assert module_lipschitz(layer) == pytest.approx(1, abs=1e-9)
    for seed in range(1 if isinstance(layer, Reflection) else 3):
        torch.manual_seed(seed)
        z = 3 * torch.randn(1, 4, SIDE, SIDE, dtype=torch.float64)
        assert float(torch.linalg.matrix_norm(jacobian(layer, z), 2)) <= 1 + 1e-7


def test_orthogonal_convolutions_keep_every_length():
    torch.manual_seed(0)
    layer = CayleyConvolution(4).double()
    matrix = jacobian(layer, torch.randn(1, 4, SIDE, SIDE, dtype=torch.float64))
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(len(matrix), dtype=torch.float64))


def test_a_reflection_keeps_lengths_where_its_potential_is_flat_or_steep():
    W = Dense.from_weight(1e3 * torch.eye(3, dtype=torch.float64))
    problem = Problem(penalty=Free(), similarity=Measurement() + Ridge(W, Ramp()))
    layer = Reflection(opteq.Equilibrium(problem, solver=Nesterov(tol=1e-10, max_steps=100_000)))
    u = torch.tensor([[1.0, -2.0, 3.0]], dtype=torch.float64)
    torch.testing.assert_close(layer(u), -u.abs(), rtol=1e-5, atol=0)


def reflection(potential, **options):
    problem = Problem(penalty=Free(), similarity=Measurement() + Ridge(Dense(5, 4), potential))
    return Reflection(opteq.Equilibrium(problem, **options))


def test_only_what_is_solved_and_convex_is_certified():
    """Half-way steps, and energies that bend down, are no proximal operators of convex functions:
    their reflections get the bound of any map, 2 L + 1."""
    assert module_lipschitz(reflection(Ramp())) == 1.0
    bent = reflection(Welsch(1.0, 1.0))
    (inner,) = [opteq.certificate(bent.layer).lipschitz]
    assert inner > 1
    assert module_lipschitz(bent) == pytest.approx(2 * inner + 1)
    assert module_lipschitz(reflection(Ramp(), gradient=Unrolled(steps=2))) > 1

    class Lying(Ramp):
        def slope(self, t):
            return -super().slope(t)

    assert module_lipschitz(reflection(Lying())) == math.inf


def test_geq_with_open_gates_keeps_every_length():
    """W / |W| and H orthogonal: z = W'(u - Wz) is w / (1 + w^2) times a rotation of u."""
    torch.manual_seed(0)
    W = Dense.from_weight(0.6 * torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64))[0])
    for gamma, least in ((1e-12, 1 - 1e-6), (1.0, 0.0)):
        problem = Problem(penalty=Free(), similarity=Gaussian(W, gamma=gamma))
        layer = Rescaled(opteq.Equilibrium(problem, solver=Anderson(tol=1e-12)))
        assert module_lipschitz(layer) == pytest.approx(1, abs=1e-6)
        u = torch.randn(1, 5, dtype=torch.float64)
        sizes = torch.linalg.svdvals(jacobian(layer, u))
        assert float(sizes.max()) <= 1 + 1e-6
        assert float(sizes.min()) >= least


def test_an_equilibrium_that_can_move_any_distance_cannot_be_rescaled():
    problem = Problem(penalty=Free(), similarity=Gaussian(Dense(5, 5, norm_bound=2.0)))
    layer = opteq.Equilibrium(problem, solver=ForwardBackward(), allow_uncertified=True)
    with pytest.raises(OptionError, match="No Lipschitz constant"):
        Rescaled(layer)


def test_the_bound_of_a_rescaled_layer_is_that_of_what_it_computes():
    layer = Rescaled(opteq.Equilibrium(Problem(penalty=Free(), similarity=Gaussian(Dense(5, 5)))))
    known = module_lipschitz(layer)
    assert 0 < known <= 1 + 1e-6
    layer.constant /= 4
    assert module_lipschitz(layer) == pytest.approx(4 * known)

    class Longer(Rescaled):
        def forward(self, u):
            return 5 * u

    assert module_lipschitz(Longer(layer.layer)) == math.inf


@pytest.mark.parametrize("channels", [4, 6, 7])
def test_any_number_of_channels_has_patches(channels):
    model = stack(layer="geq", channels=(channels,), depth=(1,), side=4, first=1)
    assert model(torch.rand(2, 3, 4, 4)).shape == (2, 10)
    assert module_lipschitz(model.layers) <= 1 + 1e-6


@pytest.mark.parametrize("kind", get_args(LayerKind))
def test_stacks_are_certified_and_no_attack_exceeds_it(kind):
    torch.manual_seed(0)
    model = stack(layer=kind, channels=(16, 64), depth=(1, 1), side=8, in_channels=1).eval()
    found = opteq.certificate(model, input_shape=(1, 8, 8))
    rows = functional.normalize(model.head.weight.detach(), dim=1)
    head = torch.linalg.matrix_norm(rows, 2)
    # GEQ's constant is that of the norms its weights have, a little below what they may have.
    loose = 0.1 if kind == "geq" else 1e-5
    assert float(head) * (1 - loose) <= found.lipschitz <= float(head) * (1 + 1e-5)
    attacked = stretch(precise(model), torch.rand(4, 1, 8, 8, dtype=torch.float64), rounds=10)
    assert float(attacked.max()) <= found.lipschitz * (1 + 1e-6)
    assert float(attacked.max()) > 0.1 * found.lipschitz


@pytest.mark.parametrize("potential", get_args(PotentialKind))
def test_gradients_equal_finite_differences(potential):
    """In images and weights, through three solves."""
    torch.manual_seed(0)
    model = stack(channels=(4,), depth=(3,), hidden=6, potential=potential, side=4, in_channels=1)
    assert module_lipschitz(model.layers) == 1
    model = precise(model, tol=1e-13).requires_grad_()
    x = torch.rand(2, 1, 4, 4, dtype=torch.float64, requires_grad=True)
    cost = torch.randn(2, 10, dtype=torch.float64)
    loss = (model(x) * cost).sum()
    parameters = dict(model.named_parameters())
    found = torch.autograd.grad(loss, [x, *parameters.values()])
    for leaf, gradient in zip([x, *parameters.values()], found, strict=True):
        way, size = torch.randn_like(leaf), 1e-5
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                leaf += sign * size * way
                ends.append(float((model(x) * cost).sum()))
                leaf -= sign * size * way
        slope = (ends[0] - ends[1]) / (2 * size)
        assert slope == pytest.approx(float((gradient * way).sum()), rel=1e-3, abs=1e-6)


@pytest.mark.filterwarnings("ignore::opteq.errors.NotConvergedWarning")  # of unrolled attacks
def test_radii_are_those_of_pairs_of_classes():
    torch.manual_seed(0)
    model = stack(channels=(16,), depth=(2,), side=8, in_channels=1).eval()
    x = torch.rand(12, 1, 8, 8)
    labels = model(x).argmax(1)
    robust = robust_accuracy(model, [(x, labels)], (0.01, 0.05), steps=5)
    assert robust.clean == 1
    assert all(c <= a for c, a in zip(robust.certified, robust.attacked, strict=True))
    assert robust.certified[0] > 0


def test_answers_carry_the_error_of_their_solves():
    """A sloppy solve is near the exact one by what it says, and its radius is below the exact
    one; what did not converge has none."""
    torch.manual_seed(0)
    model = stack(channels=(16,), depth=(3,), side=8, in_channels=1, solver=Nesterov(tol=1e-3))
    model.eval().image_shape = (1, 8, 8)
    x = torch.rand(8, 1, 8, 8)
    output = model.run(x)
    error = solve_error(model, output)
    assert error is not None
    exact = precise(model)(x.double())
    off = (output.logits.double() - exact).abs().amax(1)  # rows have length 1
    assert bool((off <= error).all())
    assert bool((error < 1).all())
    labels = output.logits.argmax(1)
    radius = predicted_radius(model, x)
    assert radius is not None
    assert bool((radius <= exact_radius(model, x, labels)).all())
    assert float(radius.max()) > 0
    for layer in opteq.layer.equilibria(model):
        layer.solver = Nesterov(tol=1e-2, max_steps=1, on_failure="ignore")
    assert float(known(predicted_radius(model, x)).max()) == 0


def test_predictions_come_with_their_radius(tmp_path):
    torch.manual_seed(0)
    model = opteq.create_model("proximal_digits").eval()
    model.class_names, model.image_shape = tuple("0123456789"), (1, 8, 8)
    Image.effect_noise((8, 8), 64).save(tmp_path / "a.png")
    (found,) = opteq.predict(model, [tmp_path / "a.png"]).values()
    assert isinstance(found, Prediction)
    x = read_for(model, tmp_path / "a.png")[None]
    assert found.radius == pytest.approx(float(known(predicted_radius(model, x))))
    assert f"(certain within {found.radius:.3f})" in str(found)


def test_odd_inputs_have_no_radius_and_break_nothing():
    torch.manual_seed(0)
    model = stack(channels=(16,), depth=(2,), side=8, in_channels=1).eval()
    assert model(torch.rand(0, 1, 8, 8)).shape == (0, 10)
    assert len(known(predicted_radius(model, torch.rand(0, 1, 8, 8)))) == 0
    x = torch.rand(3, 1, 8, 8)
    x[1] = math.nan
    with pytest.warns(NotConvergedWarning):
        radius = known(predicted_radius(model, x))
    assert radius[1] == 0
    assert bool(radius.isfinite().all())
    model.head.weight.data[:] = model.head.weight.data[:1]  # all classes are one
    assert float(known(predicted_radius(model, x[:1]))) == 0
    layer = SDPBased(4, 6)
    layer.logs.data[:2] = torch.tensor([1e4, -1e4])
    layer.weight.data[2] = 0
    assert bool(layer(torch.randn(2, 4, 5, 7)).isfinite().all())


def test_folding_is_a_permutation():
    x = torch.randn(2, 3, 8, 12)
    torch.testing.assert_close(ToDepth(4)(x), functional.pixel_unshuffle(x, 4), rtol=0, atol=0)


def test_only_the_mean_of_pixels_is_taken_away():
    model = stack(channels=(16,), depth=(1,), side=8, in_channels=1)
    model.normalize(torch.tensor([0.5]), torch.tensor([0.1]))
    assert float(model.pixel_std) == 1
    assert float(model.pixel_mean) == 0.5


def test_bad_shapes_are_refused():
    with pytest.raises(OptionError, match="do not fit into"):
        stack(channels=(8,), depth=(1,))
    with pytest.raises(OptionError, match="no blocks of 4"):
        stack(side=30, first=4)
    with pytest.raises(OptionError, match="no blocks of 3"):
        stack(side=32, pool=3)
    with pytest.raises(OptionError, match="one for each stage"):
        stack(channels=(16, 64))
    with pytest.raises(OptionError, match="cannot be paired"):
        stack(layer="cayley", channels=(13,), depth=(1,))
    with pytest.raises(ShapeError, match="side="):
        stack(channels=(16,), depth=(1,), side=8)(torch.rand(1, 3, 16, 16))
    with pytest.raises(ShapeError, match="no blocks"):
        ToDepth(2)(torch.rand(1, 3, 5, 4))
    with pytest.raises(ShapeError, match="widened"):
        Widened(2)(torch.rand(1, 3, 4, 4))


def test_a_head_has_rows_of_length_one():
    head = UnitRows(8, 3)
    torch.testing.assert_close(head.matrix().norm(dim=1), torch.ones(3))


def test_a_temperature_makes_answers_sure_and_leaves_radii_as_they_are():
    torch.manual_seed(0)
    plain = stack(channels=(4,), depth=(1,), side=SIDE, first=1, in_channels=1).eval()
    torch.manual_seed(0)
    cold = stack(
        channels=(4,), depth=(1,), side=SIDE, first=1, in_channels=1, temperature=0.1
    ).eval()
    for model in (plain, cold):
        torch.nn.init.normal_(model.head.bias, generator=torch.Generator().manual_seed(1))
    x = torch.rand(5, 1, SIDE, SIDE)
    with torch.no_grad():
        torch.testing.assert_close(cold(x), 10 * plain(x))
        assert float(cold(x).softmax(1).amax(1).min()) > float(plain(x).softmax(1).amax(1).max())
    torch.testing.assert_close(
        known(predicted_radius(cold, x)), known(predicted_radius(plain, x)), rtol=1e-3, atol=1e-5
    )
    with pytest.raises(OptionError, match="temperature"):
        UnitRows(8, 3, temperature=0.0)


@pytest.mark.filterwarnings("ignore::opteq.errors.NotConvergedWarning")
def test_solves_start_at_the_injection_and_fixed_steps_do_not(monkeypatch):
    """A bound for a number of steps is for steps from zero."""
    starts = []
    solve = opteq.Equilibrium.solve

    def watched(self, u, z0=None, **more):
        starts.append(z0)
        return solve(self, u, z0, **more)

    monkeypatch.setattr(opteq.Equilibrium, "solve", watched)
    u = torch.randn(3, 5)
    solved, steps = reflection(Ramp()), reflection(Ramp(), gradient=Unrolled(steps=2))
    near, _ = solved(u), steps(u)
    torch.testing.assert_close(starts[0], u)
    assert starts[1] is None
    again = 2 * tensor(solve(solved.layer, u).state) - u
    torch.testing.assert_close(near, again, rtol=1e-3, atol=1e-4)
