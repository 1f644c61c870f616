"""Models with weights to start from, which come with the library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opteq.errors import OptionError, nearest
from opteq.models import registry
from opteq.training.bundled import bundled, list_pretrained

if TYPE_CHECKING:
    from opteq.models.network import Network


def create_model(name: str, *, pretrained: bool = False, **options: Any) -> Network:
    """Build a model by name; `options` override those of its entry (see `opteq show NAME`).
    `solver`, `gradient` and `regularizer` may be given by name, or as a mapping with name and
    options. With `pretrained` it has weights, in evaluation mode: those of `list_pretrained`, whose
    cards are beside them, or those of a folder that `opteq.save` or a training has made.

    >>> model = create_model("geq_digits", norm_bound=0.9, gradient={"name": "phantom", "steps": 3})
    >>> model.count_parameters() > 0
    True
    >>> create_model("geq_digits", pretrained=True).class_names[3]
    '3'
    """
    if not pretrained:
        return registry.create_model(name, **options)
    from opteq.training.load import load

    if options:
        raise OptionError(
            f"Weights were trained with options of their own, so {sorted(options)[0]} cannot be "
            "given.",
            "Leave it out, or leave pretrained out.",
        )
    home = bundled(name)
    if home is None:
        raise OptionError(f"There are no weights for {name!r}.", nearest(name, list_pretrained()))
    return load(home)
