"""Folders of image files: ImageNette, ImageNet, your own; and pairs of images and label maps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from opteq.data.dataset import VOID, Data, FileImages, ImageSet, check_labels, decode, decode_labels
from opteq.data.download import Archive, find_or_fetch
from opteq.data.listing import SUFFIXES, Paths, images_below, require_folder
from opteq.errors import DataError, counted

_IMAGENETTE = Archive(
    "https://s3.amazonaws.com/fast-ai-imageclas/imagenette2.tgz",
    "md5:fe2fc210e6bb7c5664d602c3cd71e612",
    "imagenette2",
)
# ImageNet's identifiers of the ten classes.
_IMAGENETTE_NAMES = {
    "n01440764": "tench",
    "n02102040": "English springer",
    "n02979186": "cassette player",
    "n03000684": "chain saw",
    "n03028079": "church",
    "n03394916": "French horn",
    "n03417042": "garbage truck",
    "n03425413": "gas pump",
    "n03445777": "golf ball",
    "n03888257": "parachute",
}


def load_imagenette(folder: Path, *, size: int, download: bool = True) -> Data:
    """Ten easy classes of ImageNet: 9,469 + 3,925 photographs."""
    (home,) = find_or_fetch("ImageNette", folder, [_IMAGENETTE], download=download)
    data = load_image_folder(home, size=size, name="imagenette")
    names = tuple(_IMAGENETTE_NAMES.get(label, label) for label in data.classes)
    return Data(data.name, data.train, data.test, names)


def load_image_folder(
    folder: Path, *, size: int, name: str = "folder", test: float = 0.2, seed: int = 0
) -> Data:
    """One folder of images for each class, below `train` and `val` (or `test`). Without these two,
    class folders lie in the folder itself, and a fraction `test` of each class, drawn with `seed`
    and at least one image, is kept for testing."""
    require_folder(folder)
    train = folder / "train"
    kept = next((p for p in (folder / "val", folder / "test") if p.is_dir()), None)
    if train.is_dir() != (kept is not None):
        raise DataError(
            f"{folder} has only one of the folders train and val (or test).",
            "Put images into train/CLASS/ and val/CLASS/, or all of them into CLASS/.",
        )
    if kept is None:
        return _split(folder, size=size, name=name, test=test, seed=seed)
    classes = tuple(_class_names(train))
    strangers = sorted(set(_class_names(kept)) - set(classes))
    if strangers:
        raise DataError(
            f"{kept} has the class {strangers[0]!r}, which {train} does not have.",
            "Training and test folders must have the same classes.",
        )
    sets = [_class_folders(part, classes, size) for part in (train, kept)]
    return Data(name, sets[0], sets[1], classes)


def _split(folder: Path, *, size: int, name: str, test: float, seed: int) -> Data:
    """Each class divided on its own, so that rare ones are tested too."""
    classes = tuple(_class_names(folder))
    if len(classes) < 2:
        raise DataError(
            f"{folder} has {counted(len(classes), 'class folder')}.",
            "Put the images of each class into CLASS/, or into train/CLASS/ and val/CLASS/.",
        )
    every = _class_folders(folder, classes, size)
    labels, generator = every.class_labels(), torch.Generator().manual_seed(seed)
    learnt, kept = [], []
    for label, title in enumerate(classes):
        own = (labels == label).nonzero()[:, 0]
        if len(own) < 2:
            raise DataError(
                f"{folder / title} has {counted(len(own), 'image')}.",
                "Each class needs two: one to learn from, one to test on.",
            )
        own = own[torch.randperm(len(own), generator=generator)]
        cut = min(len(own) - 1, max(1, round(test * len(own))))
        learnt.append(own[cut:])
        kept.append(own[:cut])
    train, tested = (torch.cat(part).sort().values for part in (learnt, kept))
    return Data(name, every.subset(train), every.subset(tested), classes)


def _class_names(folder: Path) -> list[str]:
    """Names of the class folders, without hidden ones such as .ipynb_checkpoints."""
    names = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise DataError(
                f"{folder} has a class folder whose name is not UTF-8: {name!a}.",
                "Rename it.",
            ) from None
    return names


def _class_folders(folder: Path, classes: Sequence[str], size: int) -> FileImages:
    found = [images_below(folder / name) for name in classes]
    paths = Paths.joined(found)
    if not paths:
        raise DataError(
            f"{folder} has no images.", f"Images end in {', '.join(SUFFIXES)}, in CLASS folders."
        )
    counts = torch.tensor([len(part) for part in found])
    return FileImages(paths, torch.arange(len(found)).repeat_interleave(counts), size)


class PairedImages(ImageSet):
    """Images with label maps of the same size, for segmentation."""

    def __init__(
        self,
        pairs: Sequence[tuple[Path, Path]],
        classes: int,
        *,
        table: Tensor,
        size: tuple[int, int] | None,
    ) -> None:
        self.pairs, self.classes, self.table, self.size = list(pairs), classes, table, size

    def __len__(self) -> int:
        return len(self.pairs)

    def read(self, index: int) -> tuple[Tensor, Tensor]:
        image_path, label_path = self.pairs[index]
        image = decode(image_path, None)
        values = decode_labels(label_path)
        if values.shape != image.shape[1:]:
            raise DataError(
                f"{label_path} has {tuple(values.shape)} pixels, its image "
                f"{tuple(image.shape[1:])}.",
                "Image and label map must have the same size.",
            )
        check_labels(values, len(self.table), str(label_path))
        labels = self.table[values]
        check_labels(labels, self.classes, str(label_path))
        if self.size is not None and tuple(image.shape[1:]) != self.size:
            image = _resized(image.float(), self.size, "bilinear").round().clamp(0, 255).byte()
            labels = _resized(labels[None].float(), self.size, "nearest")[0].long()
        return image, labels

    def subset(self, index: Sequence[int] | Tensor) -> PairedImages:
        chosen = [self.pairs[i] for i in torch.as_tensor(index).tolist()]
        return PairedImages(chosen, self.classes, table=self.table, size=self.size)

    def class_labels(self) -> Tensor:
        return torch.zeros(len(self), dtype=torch.long)


def _resized(image: Tensor, size: tuple[int, int], mode: str) -> Tensor:
    options = {} if mode == "nearest" else {"antialias": True, "align_corners": False}
    return torch.nn.functional.interpolate(image[None], size=size, mode=mode, **options)[0]


def load_pairs(
    folder: Path,
    *,
    classes: int,
    void: Sequence[int] = (255,),
    size: tuple[int, int] | None = None,
    name: str = "pairs",
) -> Data:
    """Folders train/images with train/labels, and val/images with val/labels, label maps named like
    their images. Labels in `void` do not count. Without train and val, images and labels lie in
    the folder itself, and the last fifth of the images is the test set."""
    require_folder(folder)
    table = torch.arange(256)
    table[list(void)] = VOID
    parts = [folder / "train", folder / "val"]
    if all(part.is_dir() for part in parts):
        pairs = [_pairs(part) for part in parts]
    else:
        every = _pairs(folder)
        cut = max(1, len(every) // 5)
        pairs = [every[:-cut], every[-cut:]]
    sets = [PairedImages(part, classes, table=table, size=size) for part in pairs]
    names = tuple(str(i) for i in range(classes))
    return Data(name, sets[0], sets[1], names, task="segmentation")


def _pairs(folder: Path) -> list[tuple[Path, Path]]:
    images, labels = folder / "images", folder / "labels"
    if not images.is_dir() or not labels.is_dir():
        raise DataError(
            f"{folder} has no folders images and labels.",
            "Put images into images/ and label maps of the same names into labels/.",
        )
    found, maps = images_below(images), _by_place(labels)
    if len(found) < 2:
        raise DataError(
            f"{images} has {counted(len(found), 'image')}.", "There must be at least two."
        )
    pairs = []
    for path in found:
        place = path.relative_to(images).with_suffix("")
        if place not in maps:
            raise DataError(
                f"{path} has no label map.", f"Put {place}.png into {labels}, in the same folder."
            )
        pairs.append((path, maps[place]))
    return pairs


def _by_place(folder: Path) -> dict[Path, Path]:
    """The images below a folder by their path in it, without suffix."""
    found: dict[Path, Path] = {}
    for path in images_below(folder):
        place = path.relative_to(folder).with_suffix("")
        if place in found:
            raise DataError(
                f"{found[place]} and {path} are label maps of the same image.", "Remove one."
            )
        found[place] = path
    return found


# Cityscapes numbers 34 kinds of things, of which 19 are classes.
_CITYSCAPES = {7: 0, 8: 1, 11: 2, 12: 3, 13: 4, 17: 5, 19: 6, 20: 7, 21: 8, 22: 9, 23: 10, 24: 11}
_CITYSCAPES |= {25: 12, 26: 13, 27: 14, 28: 15, 31: 16, 32: 17, 33: 18}
CITYSCAPES_CLASSES = (
    "road",
    "sidewalk",
    "building",
    "wall",
    "fence",
    "pole",
    "traffic light",
    "traffic sign",
    "vegetation",
    "terrain",
    "sky",
    "person",
    "rider",
    "car",
    "truck",
    "bus",
    "train",
    "motorcycle",
    "bicycle",
)


def load_cityscapes(folder: Path, *, size: tuple[int, int] | None = None) -> Data:
    """2,975 + 500 finely annotated street scenes of 2048x1024; needs a registration, so it is never
    downloaded: leftImg8bit and gtFine must be in DIR/cityscapes."""
    home = folder / "cityscapes"
    table = torch.full((256,), VOID)
    for identifier, label in _CITYSCAPES.items():
        table[identifier] = label
    sets = []
    for part in ("train", "val"):
        images = sorted((home / "leftImg8bit" / part).glob("*/*_leftImg8bit.png"))
        pairs = []
        for path in images:
            stem = path.name.removesuffix("_leftImg8bit.png")
            label = home / "gtFine" / part / path.parent.name / f"{stem}_gtFine_labelIds.png"
            if not label.is_file():
                raise DataError(f"{path} has no label map {label}.", "Unpack gtFine again.")
            pairs.append((path, label))
        if not pairs:
            raise DataError(
                f"Cityscapes is not available: {home / 'leftImg8bit' / part} has no images.",
                "Register at https://www.cityscapes-dataset.com, download leftImg8bit_trainvaltest "
                f"and gtFine_trainvaltest, and unpack both into {home}.",
            )
        sets.append(PairedImages(pairs, 19, table=table, size=size))
    return Data("cityscapes", sets[0], sets[1], CITYSCAPES_CLASSES, task="segmentation")
