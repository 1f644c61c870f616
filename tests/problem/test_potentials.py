"""Potentials: derivatives, bounds of the second one, and that training cannot break them."""

import pytest
import torch

from opteq.errors import OptionError, ShapeError
from opteq.potentials import Huber, MinimaxConcave, Quadratic, Ramp, SoftRamp, Spline, Welsch

POTENTIALS = {
    "quadratic": lambda: Quadratic(1.7),
    "huber": lambda: Huber(3.0, 0.4),
    "welsch": lambda: Welsch(2.0, 1.5),
    "welsch at three widths": lambda: Welsch((2.0, 1.0, 3.0), (0.5, 30.0, 2000.0)),
    "minimax-concave": lambda: MinimaxConcave(5.0, 0.2, 0.7),
    "learned welsch": lambda: trained(Welsch((2.0, 1.0, 3.0), (0.5, 30.0, 2000.0), rho=0.9)),
    "convex spline": lambda: Spline(4.0, knots=7, extent=2.0),
    "spline": lambda: trained(Spline(4.0, 0.9, knots=9, extent=1.5)),
    "flat spline": lambda: trained(Spline(30.0, 0.99, knots=15), 30.0),
    "spline of 3 channels": lambda: trained(Spline(8.0, 0.9, knots=6, channels=3)),
    "ramp": lambda: Ramp(1.3),
    "soft ramp": lambda: SoftRamp(1.3, 0.2),
}
EVEN = [name for name in POTENTIALS if "ramp" not in name]


def trained(potential, std=3.0):
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in potential.parameters():
            parameter.normal_(std=std)
    return potential


def grid(count=40001, end=6.0):
    # Not on the knots, where the second derivative jumps.
    return torch.linspace(-end, end, count, dtype=torch.float64) + 1e-7


@pytest.mark.parametrize("name", POTENTIALS)
def test_slope_and_bend_are_the_derivatives(name):
    psi = POTENTIALS[name]().double()
    t = psi.spread(grid(801)).clone().requires_grad_()
    (slope,) = torch.autograd.grad(psi(t).sum(), t, create_graph=True)
    torch.testing.assert_close(psi.slope(t), slope, rtol=1e-9, atol=1e-9)
    (bend,) = torch.autograd.grad(psi.slope(t).sum(), t, materialize_grads=True)
    torch.testing.assert_close(psi.bend(t), bend, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", POTENTIALS)
def test_bends_bound_the_second_derivative(name):
    psi = POTENTIALS[name]().double()
    found = psi.bend(psi.spread(grid(400001))).detach()
    rho, mu = psi.bends()
    assert -rho <= float(found.min())
    assert float(found.max()) <= mu
    if "spline" not in name and "learned" not in name:  # whose bounds are kept, not reached
        assert rho == pytest.approx(-min(0.0, float(found.min())), rel=1e-3, abs=2e-3)
        assert mu == pytest.approx(float(found.max()), rel=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("name", EVEN)
def test_robust_potentials_lie_below_their_parabolas(name):
    """psi(t) <= psi(s) + psi'(s) (t - s) + w (t - s)^2 / 2, w = psi'(s) / s: what steps that
    minimise such parabolas rest on."""
    psi = POTENTIALS[name]().double()
    assert psi.robust
    t, s = psi.spread(grid(1201)), psi.spread(grid(301))
    cost, slope, weight = (each[:, None] for each in (psi(s), psi.slope(s), psi.slope(s) / s))
    far = t[None] - s[:, None]
    parabola = cost + slope * far + weight * far.square() / 2
    assert float((psi(t)[None] - parabola).max()) <= 1e-9
    # And psi never falls.
    assert float((psi.slope(t.abs())).min()) >= -1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", POTENTIALS)
def test_the_slope_of_a_solve_is_the_slope(name, dtype):
    psi = POTENTIALS[name]().to(dtype)
    t = psi.spread(grid(301)).to(dtype)
    pure, _, numbers = psi.pure()
    torch.testing.assert_close(pure(t, *numbers), psi.slope(t))
    assert pure(t, *numbers).dtype == dtype
    assert psi.pure().slope == pure


@pytest.mark.parametrize("name", EVEN)
def test_potentials_are_even_and_zero_at_zero(name):
    psi = POTENTIALS[name]().double()
    t = psi.spread(grid(301))
    torch.testing.assert_close(psi(t), psi(-t))
    torch.testing.assert_close(psi.slope(t), -psi.slope(-t))
    zero = psi.spread(torch.zeros(1, dtype=torch.float64))
    assert not psi(zero).any()
    assert not psi.slope(zero).any()


def test_each_channel_has_the_spline_of_its_own_numbers():
    psi = trained(Spline(8.0, 0.9, knots=6, channels=3)).double()
    t = torch.randn(4, 3, 5, 5, dtype=torch.float64)
    for channel in range(3):
        alone = Spline(8.0, 0.9, knots=6).double()
        with torch.no_grad():
            alone.raw.copy_(psi.raw[:, channel])
        for method in ("forward", "slope", "bend"):
            one, many = getattr(alone, method)(t[:, channel]), getattr(psi, method)(t)[:, channel]
            torch.testing.assert_close(many, one, rtol=1e-12, atol=1e-12)
    # Responses of a folded image: copies of a channel stand side by side.
    torch.testing.assert_close(psi(t.repeat_interleave(4, 1)), psi(t).repeat_interleave(4, 1))
    with pytest.raises(ShapeError, match="as many channels as there are filters"):
        psi(torch.randn(4, 5))


def test_the_deepest_bend_of_a_sum_is_never_missed():
    """200 random sums of Gaussian widths against a grid of a million points."""
    torch.manual_seed(0)
    t = torch.cat([torch.zeros(1), torch.logspace(-4, 2, 100_000)]).double()
    for _ in range(200):
        count = int(torch.randint(2, 6, ()))
        mu = torch.rand(count).mul(3).add(0.1).tolist()
        gamma = (10 ** (6 * torch.rand(count) - 2)).tolist()
        psi = Welsch(mu, gamma)
        deepest = -float(psi.bend(t).min())
        assert deepest <= psi.bends().rho <= deepest + 3e-4 * sum(mu)


def test_widths_far_apart_add_up_without_bending_further_down():
    alone, together = Welsch(2.0, 1.0).bends(), Welsch((2.0,) * 4, (1e0, 1e2, 1e4, 1e6)).bends()
    assert together.mu == 4 * alone.mu
    assert together.rho < 1.01 * alone.rho < 1


@pytest.mark.parametrize(
    "make",
    [lambda: Spline(2.0, 0.5), lambda: Welsch((1.0, 2.0), (1.0, 40.0), rho=0.5)],
    ids=["spline", "welsch"],
)
def test_no_optimizer_step_takes_a_potential_out_of_its_bounds(make):
    torch.manual_seed(0)
    psi = make()
    optimizer = torch.optim.SGD(psi.parameters(), lr=1e3)
    for _ in range(20):
        t = torch.randn(1000)
        loss = (torch.randn(()) * psi(t)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        bends = psi.bend(torch.linspace(-6, 6, 9999).double()).detach()
        assert float(bends.min()) >= -psi.bends().rho >= -0.5 * (1 + 1e-9)
        assert float(bends.max()) <= psi.bends().mu * (1 + 1e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Welsch((1.0, 2.0), (1.0,)), "one of each"),
        (lambda: Welsch(-1.0), "above 0"),
        (lambda: Huber(width=0.0), "above 0"),
        (lambda: Spline(1.0, -0.5), "at least 0"),
        (lambda: Spline(first=1.0, extent=0.5), "not above first"),
    ],
)
def test_bad_options_are_refused(call, words):
    with pytest.raises(OptionError, match=words):
        call()


class Parabola(Welsch):
    """t^2 / 2, whose class has a faster slope of its own."""

    def forward(self, t):
        return t.square() / 2

    def slope(self, t):
        return t

    def bend(self, t):
        return torch.ones_like(t)


def test_a_subclass_inherits_no_shortcut_of_another_slope():
    t = grid(301)
    psi = Parabola(2.4, 3.0)
    pure = psi.pure()
    torch.testing.assert_close(pure.slope(t, *pure.numbers), t)
    assert not psi.robust
