"""What the GEQ paper proves, as numbers with their conditions [GEQ section 3, appendix A.3 to A.6].

For layers z = relu(W'(beta (U x + b - W z))), beta = exp(-gamma |U x + b - W z|^2), and OptEq's
z = relu(W'W z + U x + b). Each function says in `holds` whether the premises are met and the value
means something; what is wrong as printed is corrected and pointed out. Our own bounds need none of
these premises: `opteq.theory.gaussian_lipschitz`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from opteq.options import fraction, positive, whole

# exp of anything larger overflows float64.
_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True)
class Bound:
    """A bound of the paper: its value, its premises, and whether they hold."""

    name: str
    value: float
    condition: str
    holds: bool
    measured: float | None = None
    """What it bounds, as measured on a model."""


def truncated_kernel(a: Tensor, b: Tensor, gamma: float, terms: int) -> Tensor:
    """Proposition 1, corrected: the Gaussian kernel as an inner product of features of all degrees,
    here up to degree `terms` - 1:

        exp(-gamma |a - b|^2) = lambda sum_i (2 gamma <a, b>)^i / i!,
        lambda = exp(-gamma |a|^2 - gamma |b|^2)

    (the paper prints |Wz| for |Wz|^2 in lambda, and lambda depends on z, so that the equivalent
    OptEq has no fixed weight).
    """
    positive("gamma", gamma)
    whole("terms", terms, least=1)
    product = 2 * gamma * (a * b).sum(-1)
    power, total = torch.ones_like(product), torch.zeros_like(product)
    for i in range(terms):
        total = total + power
        power = power * product / (i + 1)
    return torch.exp(-gamma * (a.square().sum(-1) + b.square().sum(-1))) * total


def truncation_error(a: Tensor, b: Tensor, gamma: float, terms: int) -> Tensor:
    """A bound on the truncated kernel's error: lambda |x|^n / n! exp(|x|), x = 2 gamma <a, b>,
    the remainder of the exponential series."""
    x = (2 * gamma * (a * b).sum(-1)).abs()
    scale = -gamma * (a.square().sum(-1) + b.square().sum(-1))
    return torch.exp(scale + terms * x.clamp(min=1e-300).log() - math.lgamma(terms + 1) + x)


def margin_bound(
    *,
    mu: float,
    m: float,
    inputs: float,
    width: int,
    weights: float,
    samples: int,
    margin: float,
    beta: float | None = None,
    confidence: float = 0.95,
) -> Bound:
    """Proposition 2: how much the expected error may exceed the empirical margin loss, by the
    PAC-Bayes argument, in the appendix's form (the text drops its factor 2 and B + 1).

    `mu` bounds the norms of U, W, b and the head, `m` is |W'W|, `inputs` is B, `width` is h,
    `weights` the sum of squared Frobenius norms, `beta` the largest gate (None: OptEq). The proof
    treats the gates as constants while weights move, which an adversary can violate: take it as a
    heuristic. A value of 1 or more says nothing.
    """
    whole("samples", samples, least=2)
    positive("margin", margin)
    gate = 1.0 if beta is None else beta
    rest = 1 - gate * m
    size = inputs + 1
    if beta is None:
        top = 2 * mu**3 * size + 2 * rest * mu * size + rest**2
    else:
        top = 2 * beta * mu**4 * size + 2 * (2 * mu * beta + 1) * rest * mu * size + rest**2
    holds = mu < 1 and rest > 0
    value = math.inf
    if rest > 0:
        complexity = 16 * width * math.log(24 * width) * top**2 * weights
        complexity /= margin**2 * rest**4 * samples
        chance = math.log(samples * math.sqrt(samples) / (1 - confidence)) / samples
        value = math.sqrt(complexity + chance)
    return Bound("proposition 2, generalisation gap", value, "norms below 1, beta m < 1", holds)


def lipschitz_bound(
    *, mu: float, inputs: float, beta: float | None = None, gamma: float = 0.0
) -> Bound:
    """Proposition 3: Lipschitz from input to equilibrium. For GEQ the denominator may vanish; it
    then says nothing; for OptEq (`beta=None`) it is mu / (1 - mu^2)."""
    if beta is None:
        value = mu / (1 - mu**2) if mu < 1 else math.inf
        return Bound("proposition 3, OptEq", value, "mu < 1", mu < 1)
    pull = beta * mu**2 + math.sqrt(gamma) * inputs * mu**3
    value = pull / (1 - pull) if pull < 1 else math.inf
    holds = mu < 1 and pull < 1
    return Bound("proposition 3, GEQ", value, "beta mu^2 + sqrt(gamma) B mu^3 < 1", holds)


def arc_cosine(x1: Tensor, x2: Tensor, variance: float, *, dim: int = -1) -> Tensor:
    """The mean of relu(<w, x1>) relu(<w, x2>) over Gaussian w with this variance, for vectors along
    `dim`: what one unit of a wide ReLU layer makes of two inputs."""
    lengths = (x1.norm(dim=dim) * x2.norm(dim=dim)).clamp(min=1e-300)
    angle = ((x1 * x2).sum(dim) / lengths).clamp(-1, 1).acos()
    arc = angle.sin() + (math.pi - angle) * angle.cos()
    return variance * lengths * arc / (2 * math.pi)


def similarity_bound(
    base: float,
    distance: float = 0.0,
    *,
    mu: float,
    beta: float | None = None,
    gamma: float = 0.0,
    outputs: float = 0.0,
    smallest: float = 0.0,
) -> Bound:
    """Proposition 4: the expected similarity of the outputs for two inputs at this `distance`, for
    one output and Gaussian entries of U; `base` is the inputs' `arc_cosine`.

    GEQ needs the largest gate `beta`, gamma, a bound on the norm of `outputs` and the smallest
    singular value of U; with D = exp(gamma B^2 |W|^2) (the paper prints B). OptEq's bound
    (`beta=None`) is wrong as printed at an angle of pi, where it is 0: see `similarity`.
    """
    if beta is None:
        value = base / (1 - mu**2) ** 2 if mu < 1 else math.inf
        condition = "mu < 1; Gaussian U; fails at angle pi"
        return Bound("proposition 4, OptEq", value, condition, mu < 1)
    exponent = gamma * (outputs * mu) ** 2 - gamma / 4 * (smallest * distance) ** 2
    rest, value = 1 - beta * mu**2, math.inf
    if rest > 0 and exponent < _LARGEST_EXPONENT:
        value = mu**2 * math.exp(exponent) * base / rest**2
    return Bound("proposition 4, GEQ", value, "beta mu^2 < 1; Gaussian U", rest > 0)


def kerdeq_similarity_bound(
    base: float,
    distance: float,
    *,
    mu: float,
    beta: float,
    gamma: float,
    outputs: float,
    largest: float,
) -> Bound:
    """KerDEQ's own form of proposition 4 [KerDEQ equation 10]: the exponent has the *largest*
    singular value of U, and no square, in place of a quarter of the smallest one squared, and
    D = exp(gamma |W| B). It falls with the distance of inputs that U may bring together, so it is
    too small there: see the tests for a pair."""
    rest = 1 - beta * mu**2
    exponent = gamma * mu * outputs - gamma * largest * distance**2
    value = math.inf
    if rest > 0 and exponent < _LARGEST_EXPONENT:
        value = mu**2 * math.exp(exponent) * base / rest**2
    return Bound("equation 10, KerDEQ", value, "beta mu^2 < 1; wrong as printed", rest > 0)


def similarity(
    equilibrium: Callable[[Tensor], Tensor],
    x1: Tensor,
    x2: Tensor,
    *,
    rows: int,
    variance: float,
    draws: int = 200,
    seed: int = 0,
) -> tuple[float, float]:
    """Similarity by Monte Carlo: mean over draws of U of <z(U x1), z(U x2)> / rows, and its
    standard error. `equilibrium` takes injections (batch, rows)."""
    whole("draws", draws, least=2)
    generator = torch.Generator().manual_seed(seed)
    shape = (draws, rows, len(x1))
    U = torch.randn(shape, generator=generator, dtype=x1.dtype) * math.sqrt(variance)
    with torch.no_grad():
        z1, z2 = equilibrium(U @ x1), equilibrium(U @ x2)
    values = (z1 * z2).sum(1).double() / rows
    return float(values.mean()), float(values.std() / math.sqrt(draws))


def far_enough(*, gamma: float, mu: float, outputs: float, smallest: float) -> float:
    """Remark 3, corrected: the distance of inputs from which GEQ's bound of proposition 4 is below
    OptEq's whatever the gates are, D exp(-gamma/4 s^2 d^2) <= 1, so d = 2 B |W| / s (the paper's
    lacks 1/sqrt(gamma), which cancels against the logarithm of D)."""
    positive("smallest", smallest)
    positive("gamma", gamma)
    return 2 * math.sqrt(gamma * outputs**2 * mu**2) / (math.sqrt(gamma) * smallest)


def remark_1(*, mu: float, m: float, beta: float) -> Bound:
    """GEQ's bound of proposition 2 is below OptEq's if both inequalities hold; the paper asks for
    beta < 0.8 and mu, m > 0.9, which suffices (at m = mu^2 = 0.8 beta must be below 0.69)."""
    fraction("beta", beta)
    premises = beta < 0.8 and mu > 0.9 and m > 0.9
    first = beta * mu / (1 - beta * m) < 1 / (1 - m)
    second = (2 * mu * beta + 1) / (1 - beta * m) <= 1 / (1 - m)
    value = (2 * mu * beta + 1) / (1 - beta * m) * (1 - m)
    words = "beta < 0.8, mu and m > 0.9: " + ("met" if premises else "not met")
    return Bound("remark 1, ratio of the bounds' terms", value, words, first and second)


def remark_2(*, mu: float, beta: float, gamma: float, inputs: float) -> Bound:
    """GEQ's constant of proposition 3 is below OptEq's. The paper's premises, beta < 0.8, B < 1 and
    sqrt(gamma) < 0.2, contradict each other: with B < 1 and so small a gamma every gate is at least
    exp(-gamma (1 + mu)^2 B^2) > 0.85."""
    geq = lipschitz_bound(mu=mu, inputs=inputs, beta=beta, gamma=gamma)
    opteq = lipschitz_bound(mu=mu, inputs=inputs)
    ratio = geq.value / opteq.value if math.isfinite(geq.value) else math.inf
    premises = beta < 0.8 and inputs < 1 and math.sqrt(gamma) < 0.2
    words = "beta < 0.8, B < 1, sqrt(gamma) < 0.2: " + ("met" if premises else "not met")
    return Bound("remark 2, GEQ's constant over OptEq's", ratio, words, ratio < 1)
