"""Every named model: what it is, where it comes from, how it is built.

No torch here, so that listing is instant. The list, the model cards and the test matrix all read
this: a model that is added here is listed, documented and tested.
"""

from opteq.models.catalogue import (
    explicit,
    geq,
    implicit,
    long_range,
    mopteq,
    opteq,
    restoration,
    stacks,
)
from opteq.models.catalogue.entry import Entry

ENTRIES = (
    *geq.ENTRIES,
    *mopteq.ENTRIES,
    *opteq.ENTRIES,
    *explicit.ENTRIES,
    *implicit.ENTRIES,
    *long_range.ENTRIES,
    *restoration.ENTRIES,
    *stacks.ENTRIES,
)

__all__ = ["ENTRIES", "Entry"]
