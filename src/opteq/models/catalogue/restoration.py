"""Energies of images, learned once and minimised for any measurement."""

from __future__ import annotations

from typing import Any

from opteq.models.catalogue.entry import Entry

_FILTERS = "Filters start at random, fading towards their edges; each sums to zero."


def _restorer(name: str, summary: str, **options: Any) -> Entry:
    return Entry(
        name=name,
        builder="restorer:restorer",
        options={
            "filters": 48,
            "side": 9,
            "kind": "weakly_convex",
            "task": "restoration",
            **options,
        },
        summary=summary,
        paper="ours",
        input_shape=(1, 64, 64),
        chosen=(_FILTERS,),
    )


ENTRIES = (
    _restorer(
        "restorer",
        "a weakly convex energy of images: denoising has one answer",
        filters=60,
        side=13,
    ),
    _restorer("restorer_convex", "a convex energy of images", kind="convex"),
    _restorer("restorer_gaussians", "GEQ's Gaussian kernel at five widths", kind="gaussians"),
    _restorer("restorer_gaussian", "GEQ's Gaussian kernel at one width", kind="gaussian"),
    _restorer(
        "total_variation",
        "total variation, the classical prior; its strength is learned",
        kind="total_variation",
    ),
    _restorer("restorer_tiny", "a small energy, for a first look", filters=24, side=7),
    _restorer("restorer_deblur", "an energy learned from blurred images", blur=1.6),
)
