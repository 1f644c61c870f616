"""Model cards: what a name stands for, from the catalogue alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from opteq.models.catalogue import Entry
from opteq.models.registry import create_model, entry


@dataclass(frozen=True)
class _Family:
    equation: str
    problem: str
    certificate: str
    acting: str = ""
    """How far the equilibrium is from one application of the map, and what changes that."""


_MONOTONE = "z = relu(Wz + Ux + b),  W = (1 - m) I - A'A + B - B'"
_MONOTONE_CERTIFICATE = (
    "I - W is strongly monotone with modulus m, so the equilibrium exists and is unique for all "
    "weights, and splitting methods find it."
)

_FAMILIES = {
    "geq:geq": _Family(
        "z = relu(W' unpatch(exp(-gamma |r_i H|^2) r_i H H')),  r = U g(x) + b - W z, per branch; "
        "branches averaged",
        "G(z) = 1'f(z) + |z|^2/2 - sum over patches of exp(-gamma |r_i H|^2) / (2 gamma), "
        "f: z >= 0",
        "|W| <= norm_bound < 1 and |H| <= 1 give a contraction for every gamma and input; up to "
        "norm_bound^2 < 2.24 the equilibrium is unique and ForwardBackward finds it.",
        "Little at a norm_bound below 1. start='orthogonal', norm_bound=3.0, gradient='implicit' "
        "let it act, at two to four times the training time; it is an option because accuracy "
        "gains only where the stem sees little of the image (`opteq reproduce ours-context`).",
    ),
    "mopteq:mopteq": _Family(
        "z_i = W_i' relu(W_i h_i(z) + U_i g(x) + b_i) for the branches i of a loop, h the gradient "
        "of the coupling",
        "G(y) = sum of 1'f(y_i) + |y_i|^2/2 - <U_i g + b_i, y_i>, minus 1/2 sum of heritage - "
        "weight * diversity at z_i = W_i'y_i, f: y >= 0",
        "|W_i| < 1 gives a contraction without the diversity term; with it nothing is certain for "
        "all inputs; each Solution reports whether it converged.",
        "Hardly. resampling='isometric' and start='orthogonal' let it act a little, at no gain in "
        "accuracy.",
    ),
    "deep:deep_opteq": _Family(
        "z = f_L o ... o f_1 (z), f_l(z) = alpha W_l' relu(W_l z + U_l g(x) + b_l) + (1 - alpha) z",
        "one unit: phi(z) = psi*(z) - |z|^2/2; two: the sum of their Moreau envelopes and half the "
        "squared distance between their outputs; more: none in closed form",
        "every |W_l| <= norm_bound < 1 gives a contraction.",
        "Little: ReLU shuts half of what W passes on. One unit with start='orthogonal' and a "
        "norm_bound of 0.99 acts most under a bound. Free weights, normalization='weight_norm', "
        "come to a feedback of a quarter and more when they are trained by SGD, without a "
        "certificate (recipe deep_opteq_cifar10_free). Neither gains accuracy.",
    ),
    "mdeq:mdeq": _Family(
        "z = cell(z, g(x)), over all scales at once: a residual block each, then full fusion",
        "none",
        "none: the cell is not known to contract; each Solution reports whether it converged.",
    ),
    "monotone:monotone": _Family(_MONOTONE, "none, as W is not symmetric", _MONOTONE_CERTIFICATE),
    "monotone:monotone_tiers": _Family(
        f"{_MONOTONE}; A couples neighbouring tiers",
        "none, as W is not symmetric",
        _MONOTONE_CERTIFICATE,
    ),
    "neural_ode:neural_ode": _Family("dz/dt = f(z) from z(0) = x to z(1)", "none", "none"),
    "tied:weight_tied": _Family("z <- relu(Wz + g(x)), ten times from z = 0", "none", "none"),
    "feed_forward:feed_forward": _Family(
        "z <- relu(W_k z + U_k g(x) + b_k), layer by layer", "none", "none"
    ),
    "hrnet:hrnet": _Family(
        "explicit: blocks of convolutions at four scales, fused again and again", "none", "none"
    ),
    "wires:wires": _Family(
        "A(x) v = s(x): potentials v in a network of wires A and sources s that the image sets",
        "G(v) = sum over wires of w (v_i - v_j)^2 / 2 + sum of c v^2 / 2 - <s, v>",
        "G is strongly convex for every input: the equilibrium exists and is unique.",
    ),
    "seeded:seeded": _Family(
        "A(x) v_k = s_k for each class k: potentials in a network of wires A that the image lays, "
        "held at the marked pixels",
        "G(v) = sum over wires of w (v_i - v_j)^2 / 2 + sum of c v^2 / 2 - <s, v>",
        "G is strongly convex for every input: the equilibrium exists and is unique.",
    ),
    "restorer:restorer": _Family(
        "z = z - H'(Hz - y) - sum over filters i of w_i' psi'(a_i w_i * z) / a_i",
        "G(z) = |Hz - y|^2 / 2 + sum over filters i and places of psi(a_i w_i * z) / a_i^2, y the "
        "measurements, a_i a function of the noise level",
        "psi'' >= -rho and |W| <= 1 with rho < 1: denoising (H = I) is strongly convex, its answer "
        "unique and moved by at most |dy| / (1 - rho).",
    ),
    "stack:stack": _Family(
        "u <- 2 z(u) - u, layer by layer, z = u - W'psi'(Wz + b); with another `layer`, an "
        "explicit one that cannot stretch",
        "G(z) = |z - u|^2 / 2 + sum of psi(Wz + b), psi convex, in each layer",
        "z is a proximal operator, so neither z nor 2 z - u stretches, for any weights; the rows "
        "of the head have length 1.",
    ),
    "resnet:resnet": _Family("explicit: blocks of convolutions", "none", "none"),
}

_YOURS = _Family("your own", "your own", "`opteq.certificate(model)` says what is proved")


def card(name: str) -> str:
    """The card of a model, as Markdown.

    >>> print(card("geq_digits").splitlines()[0])
    # geq_digits
    """
    found = entry(name)
    family = _FAMILIES[str(found.builder)] if isinstance(found.builder, str) else _YOURS
    with torch.device("meta"):
        count = create_model(name).count_parameters()
    lines = [
        f"# {found.name}",
        "",
        f"{found.summary}.",
        "",
        f"- **Equation**: {family.equation}",
        f"- **Hidden problem**: {family.problem}",
        f"- **Certificate**: {family.certificate}",
        *([f"- **Does the solve matter?** {family.acting}"] if family.acting else []),
        f"- **Input**: {' x '.join(str(side) for side in found.input_shape)}",
        f"- **Parameters**: {_count(found, count)}",
        f"- **Paper**: {found.paper}{f', table {found.table}' if found.table else ''}",
        f"- **Settings**: {', '.join(f'{key}={value!r}' for key, value in found.options.items())}",
    ]
    if found.chosen:
        lines += ["", "What the paper leaves open, and what was chosen here:", ""]
        lines += [f"- {choice}" for choice in found.chosen]
    return "\n".join(lines) + "\n"


def _count(found: Entry, count: int) -> str:
    printed = f"; the paper prints {found.printed_parameters}" if found.printed_parameters else ""
    return f"{count:,}{printed}"
