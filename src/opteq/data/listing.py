"""Which image files lie below a folder, held in little memory and listed once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import overload

import numpy as np
import torch
from torch import Tensor

from opteq.errors import DataError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff")


class Paths(Sequence[Path]):
    """Many paths in one block of bytes: a million take a fifth of the memory of as many objects,
    and processes that read images share them.

    >>> paths = Paths([Path("b/1.png"), Path("a/2.png")])
    >>> paths[-1].name, len(paths[:1]), paths.take([1, 1, 0])[2].name
    ('2.png', 1, '1.png')
    """

    def __init__(self, paths: Iterable[Path | str] = ()) -> None:
        names = [os.fsencode(path) for path in paths]
        ends = torch.from_numpy(np.cumsum([0, *map(len, names)], dtype=np.int64))
        self._letters = torch.from_numpy(np.frombuffer(b"".join(names), np.uint8).copy())
        self._starts, self._ends = ends[:-1], ends[1:]

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> Path: ...
    @overload
    def __getitem__(self, index: slice) -> Paths: ...
    def __getitem__(self, index: int | slice) -> Path | Paths:
        if isinstance(index, slice):
            return self.take(range(len(self))[index])
        place = range(len(self))[index]
        letters = self._letters[int(self._starts[place]) : int(self._ends[place])]
        return Path(os.fsdecode(letters.numpy().tobytes()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Paths) and list(self) == list(other)

    def take(self, index: Sequence[int] | Tensor) -> Paths:
        """Some of the paths, in this order, in the same block."""
        index = torch.as_tensor(index, dtype=torch.long)
        return _view(self._letters, self._starts[index], self._ends[index])

    @staticmethod
    def joined(parts: Sequence[Paths]) -> Paths:
        """The paths of all parts, one after the other."""
        before, starts, ends = 0, [], []
        for part in parts:
            starts.append(part._starts + before)
            ends.append(part._ends + before)
            before += len(part._letters)
        if not parts:
            return Paths()
        letters = torch.cat([part._letters for part in parts])
        return _view(letters, torch.cat(starts), torch.cat(ends))


def _view(letters: Tensor, starts: Tensor, ends: Tensor) -> Paths:
    view = Paths.__new__(Paths)
    view._letters, view._starts, view._ends = letters, starts, ends
    return view


Listings = dict[str, Paths]
"""Folders and the image files below them."""
_listings: ContextVar[Listings | None] = ContextVar("listings", default=None)


@contextmanager
def remembering(listings: Listings) -> Iterator[None]:
    """Folders in `listings` are not listed again, and what is listed is added to them: so that of
    many processes that train together one asks the file system for all."""
    token = _listings.set(listings)
    try:
        yield
    finally:
        _listings.reset(token)


def require_folder(folder: Path) -> None:
    """Refuse a folder that is not there."""
    if not folder.is_dir():
        raise DataError(
            f"There is no folder {folder}.",
            "If it has moved, give its new place: --path DIR (path= in Python).",
        )


def images_below(folder: Path) -> Paths:
    """Every image file below a folder, in the order of their names, without hidden ones."""
    listings = _listings.get()
    if listings is None:
        return _list(folder)
    key = str(folder.absolute())
    if key not in listings:
        listings[key] = _list(folder)
    return listings[key]


def _list(folder: Path) -> Paths:
    found: list[str] = []
    for home, folders, files in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [
            f"{home}{os.sep}{name}"
            for name in files
            if name.lower().endswith(SUFFIXES) and not name.startswith(".")
        ]
    return Paths(sorted(found, key=_parts))


def _parts(path: str) -> list[str]:
    return path.split(os.sep)  # noqa: PTH206


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise DataError(
            f"{error.filename} cannot be read: {error.strerror}.", "Its owner can let you."
        )
