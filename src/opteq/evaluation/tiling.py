"""Large images in parts that overlap."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor


@dataclass(frozen=True)
class Tile:
    """A part of an image, and which of its pixels are its own."""

    whole: tuple[int, int]
    """Height and width of the image."""
    rows: slice
    columns: slice
    own_rows: slice
    """Those that no other tile answers for."""
    own_columns: slice

    def paste(self, part: Tensor, image: Tensor, factor: int = 1) -> None:
        """Put the part's own pixels, enlarged by a factor, into the whole image."""
        rows, columns = (_times(factor, own, 0) for own in (self.own_rows, self.own_columns))
        inner_rows = _times(factor, self.own_rows, self.rows.start)
        inner_columns = _times(factor, self.own_columns, self.columns.start)
        image[..., rows, columns] = part[..., inner_rows, inner_columns]


def _times(factor: int, span: slice, start: int) -> slice:
    """The span, counted from a start, enlarged."""
    return slice(factor * (span.start - start), factor * (span.stop - start))


def tiles(height: int, width: int, *, side: int, overlap: int) -> list[Tile]:
    """An image in parts of about `side` pixels, each with `overlap` more around it; as one part if
    it is hardly larger than that. Parts start and end at even pixels."""
    return [
        Tile((height, width), rows, columns, own_rows, own_columns)
        for rows, own_rows in _spans(height, side, overlap)
        for columns, own_columns in _spans(width, side, overlap)
    ]


def _spans(length: int, side: int, overlap: int) -> list[tuple[slice, slice]]:
    count = max(1, round(length / side))
    ends = [length * i // count // 2 * 2 for i in range(count)] + [length]
    overlap += overlap % 2
    return [
        (slice(max(0, start - overlap), min(length, stop + overlap)), slice(start, stop))
        for start, stop in pairwise(ends)
    ]
