"""Networks that cannot stretch, by design: ours, and those of the literature."""

from __future__ import annotations

from typing import Any

from opteq.models.catalogue.entry import DIGIT_SHAPE, DIGITS, Entry

_ENDS = (
    "Images are folded, blocks of pixels into one place, and widened by zeros: a layout that keeps "
    "lengths. The head's rows have length 1, and logits are divided by 0.25.",
)
_HEAD = {"temperature": 0.25}
# Before, the temperature was in the loss alone.
_FORMERLY = {"temperature": 1.0}
_SIZE: dict[str, Any] = {"channels": (32,), "depth": (4,), "side": 32, "pool": 2, **_HEAD}


def _stack(name: str, layer: str, summary: str, paper: str) -> Entry:
    return Entry(
        name=name,
        builder="stack:stack",
        options={**_SIZE, "layer": layer},
        summary=summary,
        paper=paper,
        chosen=_ENDS,
        formerly=_FORMERLY,
    )


ENTRIES = (
    Entry(
        name="proximal_digits",
        builder="stack:stack",
        options={
            **DIGITS,
            **_HEAD,
            "channels": (16,),
            "depth": (2,),
            "side": 8,
            "layer": "proximal",
        },
        summary="Two reflected proximal layers for 8x8 digits: certified for any weights",
        paper="ours",
        input_shape=DIGIT_SHAPE,
        chosen=_ENDS,
        formerly=_FORMERLY,
    ),
    _stack(
        "proximal_tiny",
        "proximal",
        "Four reflected proximal layers for 32x32 images: certified for any weights",
        "ours",
    ),
    Entry(
        name="proximal_cifar10",
        builder="stack:stack",
        options={"channels": (64,), "depth": (4,), "first": 4, "layer": "proximal", **_HEAD},
        summary="Four reflected proximal layers for 32x32 images in full resolution",
        paper="ours",
        chosen=_ENDS,
        formerly=_FORMERLY,
    ),
    _stack(
        "convex_potential_tiny",
        "convex_potential",
        "Four convex-potential layers for 32x32 images",
        "A Dynamical System Perspective for Lipschitz Neural Networks (Meunier et al., 2022)",
    ),
    _stack(
        "almost_orthogonal_tiny",
        "almost_orthogonal",
        "Four almost orthogonal convolutions for 32x32 images",
        "Almost-Orthogonal Layers for Efficient General-Purpose Lipschitz Networks (Prach and "
        "Lampert, 2022)",
    ),
    _stack(
        "sdp_tiny",
        "sdp",
        "Four SDP-based layers for 32x32 images",
        "A Unified Algebraic Perspective on Lipschitz Neural Networks (Araujo et al., 2023)",
    ),
    _stack(
        "cayley_tiny",
        "cayley",
        "Four orthogonal convolutions for 32x32 images",
        "Orthogonalizing Convolutional Layers with the Cayley Transform (Trockman and Kolter, "
        "2021)",
    ),
)
