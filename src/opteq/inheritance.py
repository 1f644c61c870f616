"""Shortcuts that a class must not inherit once it has changed what they were written for."""

from __future__ import annotations


def forget(cls: type, base: type, *, changed: tuple[str, ...], shortcuts: tuple[str, ...]) -> None:
    """Where one of `changed` comes from a newer class than a shortcut does, a mixin included, the
    shortcut becomes that of `base` again, which assumes nothing. For `__init_subclass__`.

    >>> class Shape:
    ...     def __init_subclass__(cls):
    ...         forget(cls, Shape, changed=("area",), shortcuts=("area_is_known",))
    ...     area_is_known = False
    >>> class Square(Shape):
    ...     area, area_is_known = 1.0, True
    >>> class Blob(Square):
    ...     area = 2.0
    >>> Square.area_is_known, Blob.area_is_known
    (True, False)
    """
    newest = min(age(cls, name) for name in changed)
    for name in shortcuts:
        if age(cls, name) > newest:
            setattr(cls, name, vars(base)[name])


def age(cls: type, name: str) -> int:
    """How far up the class hierarchy an attribute is defined; its length if nowhere."""
    lineage = cls.__mro__
    return next((i for i, one in enumerate(lineage) if name in vars(one)), len(lineage))
