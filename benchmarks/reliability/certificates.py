"""Every bound that is claimed to be one, under attack: gradient ascent looks for a violation.

    python benchmarks/reliability/certificates.py [--tries 10000] [PATTERN ...]

One line for each bound: tries (points at which it was put to the test, all but the first of each
start chosen by ascent), violations, and how near the best attack came (1: the bound is reached).
Exits with 1 if there was a violation. The suite runs the same with few tries.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

import opteq
from opteq.data import load_data
from opteq.equilibrium import (
    BoundBranches,
    BoundMap,
    BoundMonotone,
    BoundProximal,
    Branch,
    Branches,
    Chain,
    EquilibriumMap,
    Monotone,
    Proximal,
    Unit,
)
from opteq.equilibrium.base import State, as_tuple, like
from opteq.errors import NotConvergedWarning
from opteq.gradient import Implicit
from opteq.operators import AveragePool, Conv2d, Dense, PatchProjection
from opteq.problem import (
    Gaussian,
    HeritageDiversity,
    Linear,
    NonNegative,
    PatchGaussian,
    Penalty,
    Problem,
    Shrinkage,
    Similarity,
    Softplus,
)
from opteq.solve import Anderson, Broyden, ForwardBackward, Picard, Solver, solve
from opteq.theory import certificate, precise, stretch
from opteq.theory.layers import LayerBounds, layer_bounds
from opteq.theory.modules import module_lipschitz
from opteq.theory.propositions import (
    lipschitz_bound,
    similarity,
    similarity_bound,
    truncated_kernel,
    truncation_error,
)
from opteq.theory.robustness import certified_radius, margin_lipschitz
from opteq.train.attack import Attack

ROUNDS = 20
# What float64 and solves to 1e-12 leave, far below what a wrong bound would show.
ROUNDING = 1 + 1e-6
Inner = Callable[[Tensor], Tensor]
Ratios = Iterator[Tensor]
"""Found over allowed, so that above 1 is a violation."""


def _problem(similarity: Similarity, penalty: Penalty | None = None) -> EquilibriumMap:
    return Proximal(Problem(penalty=penalty or NonNegative(), similarity=similarity))


def _linear(norm: float, penalty: Penalty | None = None) -> EquilibriumMap:
    return _problem(Linear(Dense(6, 6, norm_bound=norm)), penalty)


def _gaussian(norm: float, penalty: Penalty | None = None) -> EquilibriumMap:
    gamma = float(torch.empty(()).uniform_(0.1, 3))
    return _problem(Gaussian(Dense(6, 5, norm_bound=norm), gamma=gamma), penalty)


def _patches() -> EquilibriumMap:
    projection = PatchProjection(patch=2, split=2, hidden=6)
    return _problem(PatchGaussian(Conv2d(3, 4, norm_bound=1.2), projection, gamma=0.5))


def _chain() -> EquilibriumMap:
    return Chain(
        [
            Unit(Dense(5, 7, norm_bound=0.9), injection=torch.nn.Linear(5, 7), alpha=alpha)
            for alpha in (0.8, 1.0)
        ]
    )


def _branches(weight: float, diversity: str = "smooth") -> EquilibriumMap:
    injections = [Conv2d(3, 4, norm_bound=1.0), Conv2d(3, 5, norm_bound=1.0) @ AveragePool(2)]
    weights = [Conv2d(3, 4, norm_bound=0.9), Conv2d(3, 5, norm_bound=0.9)]
    coupling = HeritageDiversity(weight, diversity=diversity if weight else "none")
    return Branches(
        [Branch(w, u, channels=c) for w, u, c in zip(weights, injections, (4, 5), strict=True)],
        coupling=coupling,
    )


def _monotone() -> EquilibriumMap:
    return Monotone(Dense(5, 5, norm_bound=None), Dense(5, 5, norm_bound=None), modulus=0.4)


_BEYOND = "Gaussian, |W| <= 1.45"
MAPS: dict[str, tuple[Callable[[], EquilibriumMap], tuple[int, ...], Solver]] = {
    "linear": (lambda: _linear(0.9), (6,), ForwardBackward()),
    "linear, shrinkage": (lambda: _linear(0.7, Shrinkage(0.1)), (6,), ForwardBackward()),
    "Gaussian": (lambda: _gaussian(0.95), (5,), ForwardBackward()),
    "Gaussian, softplus": (lambda: _gaussian(0.95, Softplus()), (5,), ForwardBackward()),
    _BEYOND: (lambda: _gaussian(1.45), (5,), ForwardBackward()),
    "Gaussian patches": (_patches, (4, 4, 4), ForwardBackward()),
    "chain": (_chain, (5,), Anderson()),
    "branches": (lambda: _branches(0.0), (3, 4, 4), Anderson()),
    "branches with diversity": (lambda: _branches(0.1), (3, 4, 4), Picard(damping=0.5)),
    "monotone": (_monotone, (5,), ForwardBackward()),
}


def instances(name: str, tries: int) -> Iterator[tuple[opteq.Equilibrium, Tensor]]:
    """Ten layers with random weights, each with inputs for a tenth of the tries."""
    make, shape, solver = MAPS[name]
    starts = max(1, math.ceil(tries / ROUNDS / 10))
    for seed in range(10):
        torch.manual_seed(seed)
        layer = opteq.Equilibrium(
            make(),
            solver=replace(solver, tol=1e-12, max_steps=5000, on_failure="ignore"),
            gradient=Implicit(),
            allow_uncertified=True,
        )
        size = float(torch.empty(()).uniform_(0.3, 4))
        yield layer.double().eval(), size * torch.randn(starts, *shape, dtype=torch.float64)


def bounds_of(layer: opteq.Equilibrium, u: Tensor) -> LayerBounds:
    return layer_bounds(layer.map, tuple(u.shape[1:]))


def ascend(ratio: Callable[..., Tensor], *starts: Tensor) -> Ratios:
    """Normalised gradient steps on all of the arguments."""
    points = [start.detach() for start in starts]
    for _ in range(ROUNDS):
        points = [p.requires_grad_() for p in points]
        value = ratio(*points)
        slopes = torch.autograd.grad(value.sum(), points)
        yield value.detach()
        with torch.no_grad():
            points = [
                p + 0.1 * _length(p) * functional.normalize(g.flatten(1), dim=1).view_as(p)
                for p, g in zip(points, slopes, strict=True)
            ]


def _length(x: Tensor) -> Tensor:
    return x.flatten(1).norm(dim=1).view(-1, *[1] * (x.ndim - 1))


def _flat(parts: State) -> Tensor:
    return torch.cat([part.flatten(1) for part in as_tuple(parts)], 1)


def _like(flat: Tensor, parts: State) -> State:
    pieces = flat.split([part[0].numel() for part in as_tuple(parts)], 1)
    return like(parts, tuple(a.view_as(b) for a, b in zip(pieces, as_tuple(parts), strict=True)))


def contraction(name: str, tries: int) -> Ratios:
    """|T(z) - T(z')| / |z - z'|, for branches in the norm of the largest."""
    for layer, u in instances(name, tries):
        bound, allowed = layer.map.bind(u), bounds_of(layer, u).contraction
        yield from ascend(partial(_moved, bound, allowed), *_pair(_flat(bound.start())))


def _moved(bound: BoundMap, allowed: float, flat: Tensor, d: Tensor) -> Tensor:
    zero = bound.start()
    images = [as_tuple(bound(_like(x, zero))) for x in (flat + d, flat)]
    top = _largest([a - b for a, b in zip(*images, strict=True)])
    return top / (_largest(as_tuple(_like(d, zero))) * allowed)


def _largest(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack([part.flatten(1).norm(dim=1) for part in parts]).amax(0)


def _pair(zero: Tensor) -> tuple[Tensor, Tensor]:
    """A point and a difference to begin with."""
    return 3 * torch.randn_like(zero), 0.1 * torch.randn_like(zero)


def convexity(name: str, tries: int) -> Ratios:
    """<F(z) - F(z'), z - z'> / |z - z'|^2 against 1 - modulus; for branches in the y_i."""
    for layer, u in instances(name, tries):
        bound = layer.map.bind(u)
        allowed = 1 - bounds_of(layer, u).convexity
        if isinstance(bound, BoundBranches):
            inner, zero = partial(_pulled, bound), _flat(tuple(bound.injections))
        elif isinstance(bound, BoundMonotone):
            inner, zero = bound.map.product, bound.start()
        else:
            assert isinstance(bound, BoundProximal)
            inner, zero = bound.problem.similarity.gradient, bound.start()

        def slope(z: Tensor, d: Tensor, inner: Inner = inner, allowed: float = allowed) -> Tensor:
            along = ((inner(z + d) - inner(z)) * d).flatten(1).sum(1)
            return along / (d.flatten(1).square().sum(1) * allowed)

        yield from ascend(slope, *_pair(zero))


def _pulled(bound: BoundBranches, flat: Tensor) -> Tensor:
    """W_i h_i(W'y), flat."""
    ys = as_tuple(_like(flat, tuple(bound.injections)))
    pairs = list(zip(bound.branches, ys, strict=True))
    states = tuple(branch.operator.adjoint(y) for branch, y in pairs)
    pulls = [bound.coupling.pull(states, i) for i in range(len(states))]
    return _flat(tuple(b.operator(h) for b, h in zip(bound.branches, pulls, strict=True)))


def lipschitz(name: str, tries: int) -> Ratios:
    """Injection to equilibrium."""
    for layer, u in instances(name, tries):
        allowed = certificate(layer, input_shape=tuple(u.shape[1:])).lipschitz
        yield from _stretched(lambda x, layer=layer: _flat(layer(x)), u, allowed)


def _stretched(function: Callable[[Tensor], Tensor], x: Tensor, allowed: float) -> Ratios:
    # The best of each start stands for all its rounds.
    yield (stretch(function, x, rounds=ROUNDS) / allowed).repeat(ROUNDS)


def sharp(norm: float, tries: int) -> Ratios:
    """W = wI in two dimensions, where the Gaussian bound is reached."""
    W = Dense.from_weight(norm * torch.eye(2, dtype=torch.float64))
    problem = Problem(penalty=NonNegative(), similarity=Gaussian(W, gamma=1.0))
    solver = ForwardBackward(tol=1e-12, max_steps=5000)
    layer = opteq.Equilibrium(problem, solver=solver, gradient=Implicit())
    torch.manual_seed(0)
    u = 3 * torch.rand(max(8, tries // ROUNDS), 2, dtype=torch.float64)
    yield from _stretched(layer, u, certificate(layer).lipschitz)


def distance(name: str, tries: int) -> Ratios:
    """|T(z) - z*| <= c/m |T(z) - z|, by which a solve is known to be near enough."""
    for layer, u in instances(name, tries):
        known = bounds_of(layer, u)
        allowed = known.contraction / known.convexity
        bound, star = layer.map.bind(u), _flat(layer.solve(u).state).detach()

        def ratio(z: Tensor, bound: BoundMap = bound, star: Tensor = star) -> Tensor:
            image = _flat(bound(_like(z, bound.start())))
            return (image - star).norm(dim=1) / (image - z).norm(dim=1)

        for value in ascend(ratio, star + torch.randn_like(star)):
            yield value / allowed


def unique(name: str, tries: int) -> Ratios:
    """Solves from far starts end at one point."""
    for layer, u in instances(name, tries):
        star, zero = _flat(layer.solve(u).state), layer.map.bind(u).start()
        for _ in range(ROUNDS):
            far = 10 * torch.randn_like(_flat(zero))
            other = _flat(layer.solve(u, z0=_like(far, zero)).state)
            yield ((other - star).norm(dim=1) / (1e-6 * (1 + star.norm(dim=1)))).detach()


def promised(name: str, solver: Callable[..., Solver], word: str, tries: int) -> Ratios:
    """Evaluations taken against those promised."""
    for layer, u in instances(name, tries):
        layer.solver = replace(layer.solver, tol=1e-3)
        claims = certificate(layer).claims
        (allowed,) = [float(c.value) for c in claims if c.name.startswith(f"{word}: ")]
        for _ in range(ROUNDS):
            bound = layer.map.bind(u * torch.rand(()) * 5 + torch.randn_like(u))
            own = solver(tol=1e-3, max_steps=int(10 * allowed), on_failure="ignore")
            yield solve(bound, bound.start(), own).steps / allowed


def first_proposition(tries: int) -> Ratios:
    for terms in (1, 2, 5, 10, 20):
        torch.manual_seed(terms)
        a, b = torch.randn(2, max(1, tries // 100), 6, dtype=torch.float64)

        def ratio(a: Tensor, b: Tensor, terms: int = terms) -> Tensor:
            exact = torch.exp(-0.3 * (a - b).square().sum(1))
            gap = (truncated_kernel(a, b, 0.3, terms) - exact).abs()
            return gap / (truncation_error(a, b, 0.3, terms) + 1e-14)

        yield from ascend(ratio, a, b)


def third_proposition(tries: int) -> Ratios:
    """Where its condition holds: |x| and |z| at most B, features to equilibrium."""
    torch.manual_seed(0)
    for gamma, mu in ((0.02, 0.5), (0.1, 0.6), (0.5, 0.5), (0.1, 0.7)):
        W = torch.randn(5, 4, dtype=torch.float64)
        W = mu * W / torch.linalg.matrix_norm(W, 2)
        U = torch.randn(5, 6, dtype=torch.float64)
        U = mu * U / torch.linalg.matrix_norm(U, 2)
        problem = Problem(penalty=NonNegative(), similarity=Gaussian(Dense.from_weight(W), gamma))
        layer = opteq.Equilibrium(
            problem, solver=Anderson(tol=1e-12, max_steps=500), gradient=Implicit()
        )
        bound = lipschitz_bound(mu=mu, inputs=1.0, beta=1.0, gamma=gamma)
        assert bound.holds

        def inside(x: Tensor, layer: opteq.Equilibrium = layer, U: Tensor = U) -> Tensor:
            x = x / x.norm(dim=1, keepdim=True).clamp(min=1.0)
            return layer(x @ U.T)

        x = torch.randn(max(1, tries // 80), 6, dtype=torch.float64)
        yield from _stretched(inside, x, bound.value)


def fourth_proposition(tries: int) -> Ratios:
    """The similarity of outputs over random U, five standard errors below: GEQ's bound."""
    torch.manual_seed(0)
    W = torch.randn(20, 20, dtype=torch.float64)
    W = 0.7 * W / torch.linalg.matrix_norm(W, 2)
    problem = Problem(penalty=NonNegative(), similarity=Gaussian(Dense.from_weight(W), 0.2))
    layer = opteq.Equilibrium(problem, solver=Anderson(tol=1e-6, max_steps=200))
    for k in range(tries):
        x, y = torch.randn(2, 8, dtype=torch.float64)
        x, y = x / x.norm(), y / y.norm()
        y = x + (y - x) * (k % 5) / 4
        mean, error = similarity(layer, x, y, rows=20, variance=0.02, draws=40, seed=k)
        bound = similarity_bound(
            x, y, mu=0.7, variance=0.02, beta=1.0, gamma=0.2, outputs=1.0, smallest=0.0
        )
        yield torch.tensor([(mean - 5 * error) / bound.value])


MODELS = {
    "GEQ": ("geq_digits", {"middle": (16,), "sides": (8,), "channels": 16}),
    "GEQ, two branches": ("geq_digits", {"channels": 16, "middle": (8, 16)}),
    "GEQ beyond contraction": (
        "geq_digits",
        {
            "channels": 16,
            "middle": (16,),
            "sides": (8,),
            "norm_bound": 1.4,
            "solver": "forward_backward",
            "gradient": "implicit",
        },
    ),
    "GEQ applied once": (
        "geq_digits",
        {
            "channels": 16,
            "middle": (16,),
            "sides": (8,),
            "gradient": {"name": "unrolled", "steps": 1},
            "solver": {"name": "picard", "on_failure": "ignore"},
        },
    ),
    "OptEq": ("opteq_single_digits", {"channels": 16, "widths": (16,), "gradient": "one_step"}),
    "deep OptEq": ("opteq_digits", {"widths": (8, 8, 8), "gradient": "one_step"}),
    "MOptEq": ("mopteq_digits", {"channels": 16, "middle": (8, 8, 16)}),
    "GEQ, free stem": ("geq_digits", {"certified": False, "channels": 16, "middle": (8, 16)}),
}
_TRAINED: dict[str, tuple[opteq.models.classifier.Network, Tensor, Tensor]] = {}


def trained(name: str) -> tuple[opteq.models.classifier.Network, Tensor, Tensor]:
    """A small model after forty steps on digits, exact and in float64, and images."""
    if name not in _TRAINED:
        torch.manual_seed(0)
        registered, options = MODELS[name]
        options = {"certified": True, "head_grid": 4, "head_norm": 20.0} | options
        if not options["certified"]:
            options.pop("head_norm")
        model = opteq.create_model(registered, **options)
        model.image_shape = (1, 8, 8)
        images, labels = load_data("digits").train.read(torch.arange(512))
        images = images.float() / 255
        optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
        for _ in range(40):
            optimiser.zero_grad()
            functional.cross_entropy(model(images[:256]), labels[:256]).backward()
            optimiser.step()
        _TRAINED[name] = precise(model), images.double(), labels
    return _TRAINED[name]


def logits(name: str, tries: int) -> Ratios:
    """Image to logits."""
    model, images, _ = trained(name)
    torch.manual_seed(1)
    starts = images[torch.randint(len(images), (max(1, tries // ROUNDS),))]
    allowed = certificate(model).lipschitz
    for part in starts.split(100):
        yield from _stretched(model, part, allowed)


def radius(name: str, tries: int) -> Ratios:
    """Attacks within exactly the certified radius of each image: the share of the lead that they
    take, of which all would be a change of class."""
    model, images, labels = trained(name)
    with torch.no_grad():
        clean = model(images)
    reach = certified_radius(clean, labels, margin_lipschitz(model, certificate(model).lipschitz))
    right = (reach > 0).nonzero()[:, 0][: max(8, tries // (ROUNDS * 2))]
    for attack in (Attack(1.0, "l2", ROUNDS), Attack(1.0, "l2", ROUNDS, loss="margin")):
        for index in right.split(100):
            x, y, own = images[index], labels[index], reach[index].view(-1, 1, 1, 1)
            first, d = _lead(clean[index], y), attack.noise(x)
            for _ in range(ROUNDS):
                d.requires_grad_()
                found = model(x + own * d)
                (slope,) = torch.autograd.grad(attack.objective(found, y), d)
                yield 1 - _lead(found.detach(), y) / first
                d = attack.within(d.detach() + attack.uphill(slope))


def _lead(found: Tensor, labels: Tensor) -> Tensor:
    own = found.gather(1, labels[:, None])
    return (own - found).scatter(1, labels[:, None], math.inf).amin(1)


def stems(tries: int) -> Ratios:
    """Ordinary layers in front of an equilibrium."""
    for seed in range(10):
        torch.manual_seed(seed)
        stem = torch.nn.Sequential(
            torch.nn.Conv2d(2, 4, 3, padding=1, stride=1 + seed % 2),
            torch.nn.BatchNorm2d(4),
            torch.nn.ReLU(),
        )
        stem(torch.randn(16, 2, 8, 8))
        stem.eval().double()
        x = torch.randn(max(1, tries // (10 * ROUNDS)), 2, 8, 8, dtype=torch.float64)
        yield from _stretched(stem, x, module_lipschitz(stem))


def checks() -> dict[str, Callable[[int], Ratios]]:
    """All of them, by name."""
    found: dict[str, Callable[[int], Ratios]] = {}

    def add(title: str, function: Callable[..., Ratios], *arguments: object) -> None:
        found[title] = lambda tries: function(*arguments, tries)

    for name in MAPS:
        if "diversity" not in name:
            add(f"contraction: {name}", contraction, name)
        if name != "chain":
            add(f"modulus: {name}", convexity, name)
        add(f"injection to equilibrium: {name}", lipschitz, name)
        add(f"one equilibrium: {name}", unique, name)
    for norm in (0.3, 0.6, 0.9, 1.2, 1.4):
        add(f"sector bound, |W| = {norm:g}, sharp", sharp, norm)
    for name in ("linear", "Gaussian", _BEYOND, "Gaussian patches"):
        add(f"distance to the equilibrium: {name}", distance, name)
    plain = partial(ForwardBackward, accelerate=False)
    for name, title, solver, word in (
        ("linear", "Picard", Picard, "Picard"),
        ("Gaussian", "Picard", Picard, "Picard"),
        ("Gaussian", "Anderson", Anderson, "Anderson, Broyden"),
        ("Gaussian", "Broyden", Broyden, "Anderson, Broyden"),
        ("Gaussian patches", "ForwardBackward, plain", plain, "ForwardBackward, plain"),
        (_BEYOND, "ForwardBackward", ForwardBackward, "ForwardBackward"),
        ("monotone", "ForwardBackward", ForwardBackward, "ForwardBackward"),
    ):
        add(f"evaluations, {title}: {name}", promised, name, solver, word)
    for name in MODELS:
        add(f"image to logits: {name}", logits, name)
        add(f"certified radius: {name}", radius, name)
    add("ordinary layers", stems)
    add("proposition 1, error of the truncated kernel", first_proposition)
    add("proposition 3, where its condition holds", third_proposition)
    add("proposition 4, GEQ", fourth_proposition)
    return found


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("patterns", nargs="*", default=["*"])
    parser.add_argument("--tries", type=int, default=10_000)
    arguments = parser.parse_args(words)
    warnings.simplefilter("ignore", NotConvergedWarning)
    print(f"{'bound':54} {'tries':>7} {'violations':>10} {'best / bound':>12} {'s':>5}")
    total = 0
    for title, run in checks().items():
        if not any(fnmatchcase(title, pattern) for pattern in arguments.patterns):
            continue
        begin, tries, violations, best = time.perf_counter(), 0, 0, -math.inf
        for ratios in run(arguments.tries):
            tries += len(ratios)
            violations += int((~(ratios <= ROUNDING)).sum())
            best = max(best, float(ratios.max()))
        total += violations
        spent = time.perf_counter() - begin
        print(f"{title:54} {tries:7,} {violations:10} {best:12.4f} {spent:5.0f}", flush=True)
    print(f"{total} violations")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
