"""Registered models made small: the same builder, parts and branches, fewer channels. For a
rehearsal of an experiment, and for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opteq.models.registry import entry, is_own

Options = dict[str, Any]
Narrowing = Callable[[Options, int], tuple[Options, int]]
"""From a model's options and its images' side to smaller ones."""
_STEPS = 5
_USUAL_GRADIENTS = {"deep:deep_opteq": {"name": "unrolled"}}


def reduced_options(name: str, **changes: Any) -> tuple[Options, int]:
    """Options by which a model is small in every respect, and the side of images that it takes."""
    found = entry(name)
    return _NARROWINGS[str(found.builder)]({**found.options, **changes}, found.input_shape[1])


def narrowed(name: str, **changes: Any) -> Options:
    """Options by which a model has few channels, and takes the images it is made for; those for
    digits are small as they are, and those of users are theirs."""
    if is_own(name) or entry(name).input_shape[1] == 8:
        return changes
    options, _ = reduced_options(name, **changes)
    sizes = ("side", "sides", "pool")
    small = {key: value for key, value in options.items() if key not in sizes}
    return {**changes, **small, **_brief(name, changes)}


def _brief(name: str, changes: Options) -> Options:
    """A few steps where a model takes many."""
    builder, options = str(entry(name).builder), {**entry(name).options, **changes}
    gradient = options.get("gradient", _USUAL_GRADIENTS.get(builder))
    if isinstance(gradient, dict) and gradient["name"] == "unrolled":
        return {"gradient": {**gradient, "steps": min(gradient.get("steps", _STEPS), _STEPS)}}
    if builder == "restorer:restorer":
        return {"solver": {"name": "memory_gradient", "max_steps": 1}}
    return {}


def _geq(options: Options, side: int) -> tuple[Options, int]:
    factor = max(1, min(options["sides"]) // options["patch"])
    sides = tuple(n // factor for n in options["sides"])
    low = min(options["middle"])
    middle = tuple(options["split"] * min(2, m // low) for m in options["middle"])
    small = {"channels": 8, "middle": middle, "sides": sides, "hidden": 8}
    return small, max(sides) * 2 ** options.get("reductions", 0)


def _mopteq(options: Options, side: int) -> tuple[Options, int]:
    factor = 4 if len(set(options["sides"])) == 1 else min(options["sides"]) // 2
    sides = tuple(n // factor for n in options["sides"])
    low = min(options["middle"])
    middle = tuple(4 * min(2, m // low) for m in options["middle"])
    return {"channels": 6, "middle": middle, "sides": sides}, side // factor


def _deep(options: Options, side: int) -> tuple[Options, int]:
    low = min(options["widths"])
    widths = tuple(4 * min(3, w // low) for w in options["widths"])
    if "extractor" in options:
        return {"channels": 16, "widths": widths}, 32
    return {"channels": 8, "widths": widths}, 8 * 2 ** options.get("reductions", 0)


def _mdeq(options: Options, side: int) -> tuple[Options, int]:
    scales = len(options["channels"])
    side = 2 ** (scales + 1)
    small = {"channels": (4,) * scales, "head": (2,) * scales, "final": 8, "side": side}
    return small, side * 2 ** options.get("reductions", 0)


def _stack(options: Options, side: int) -> tuple[Options, int]:
    # As few channels as the folded image fits into, with a few of zeros where there were some.
    channels, now, fold = [], options.get("in_channels", 3), options.get("first", 2)
    full = now
    for width in options["channels"]:
        zeros = 2 if width > full * fold**2 else 0
        channels.append(now * fold**2 + zeros)
        now, full, fold = channels[-1], width, 2
    small = 2 ** len(channels) * options.get("first", 2) * options.get("pool", 1)
    return {"channels": tuple(channels), "side": small}, small


_NARROWINGS: dict[str, Narrowing] = {
    "geq:geq": _geq,
    "mopteq:mopteq": _mopteq,
    "deep:deep_opteq": _deep,
    "mdeq:mdeq": _mdeq,
    "monotone:monotone": lambda _, side: ({"channels": 4, "side": 8, "pool": 2}, 8),
    "monotone:monotone_tiers": lambda options, side: (
        {"channels": (3, 4, 5)[: len(options["channels"])], "side": 8},
        8,
    ),
    "neural_ode:neural_ode": lambda _, side: ({"filters": 8, "side": 8}, 8),
    "tied:weight_tied": lambda _, side: ({"channels": 8}, 8),
    "feed_forward:feed_forward": lambda options, side: (
        {"channels": 8, "widths": (4,) * len(options["widths"])},
        8,
    ),
    "hrnet:hrnet": lambda options, side: (
        {
            "width": 4,
            "first": (options.get("first", (4, 64))[0], 8),
            "head": (2, 4, 8, 16),
            "final": 32,
        },
        64,
    ),
    "stack:stack": _stack,
    "seeded:seeded": lambda _, side: ({"channels": 4}, 16),
    "wires:wires": lambda _, side: ({"channels": 8}, side),
    "restorer:restorer": lambda _, side: ({"filters": 8, "side": 5, "compile": False}, 16),
    "resnet:resnet": lambda _, side: ({"width": 4}, 32),
}
