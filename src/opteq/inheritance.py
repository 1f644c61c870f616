"""Shortcuts that a class must not inherit once it has changed what they were written for."""

from __future__ import annotations


def forget(cls: type, base: type, *, changed: tuple[str, ...], shortcuts: tuple[str, ...]) -> None:
    """If a class redefines one of `changed`, the shortcuts that it does not redefine too become
    those of `base` again, which assume nothing. For `__init_subclass__`.

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
    own = vars(cls)
    if not any(name in own for name in changed):
        return
    for name in shortcuts:
        if name not in own:
            setattr(cls, name, vars(base)[name])
