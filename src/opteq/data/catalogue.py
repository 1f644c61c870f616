"""Datasets by name."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opteq.addresses import function_at, is_address, require_function
from opteq.data.download import data_folder, is_given
from opteq.errors import DataError, DataWarning, OptionError, UnknownOptionError, nearest

if TYPE_CHECKING:
    from opteq.data.dataset import Data
    from opteq.data.settings import DataSettings


@dataclass(frozen=True)
class Named:
    """A dataset known by name, and where its files lie below the data folder."""

    summary: str
    home: str
    load: Callable[[DataSettings, Path], Data]
    complete: tuple[int, int] | None = None
    """The expected numbers of training and test images."""


def list_data() -> dict[str, str]:
    """Names of the datasets with a line about each."""
    return {name: found.summary for name, found in NAMED.items() if name != GIVEN}


GIVEN = "given"
"""What runs call data that was handed to them in Python."""


def named(name: str) -> Named:
    """What is known about a dataset; `my_file.py:load` is one of your own."""
    if is_address(name):
        return Named("data of your own", "", _own(name, function_at(name)))
    require_function(name)
    if name not in NAMED:
        raise UnknownOptionError(f"There is no dataset {name!r}.", nearest(name, NAMED))
    return NAMED[name]


def register_data(
    name: str, load: Callable[..., Any], *, summary: str = "data of your own"
) -> None:
    """Give data of your own a name for recipes. `load` returns `Data`, such as
    `opteq.data.memory_data` makes from arrays; if it takes an argument, that is the data folder.

    >>> from opteq.data import load_data
    >>> register_data("digits-again", lambda: load_data("digits"))
    >>> len(load_data("digits-again").test)
    360
    """
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise OptionError(f"Data cannot be called {name!r}.", "Use letters, digits, - and _.")
    if name in NAMED and name not in _REGISTERED:
        raise OptionError(f"There is already a dataset {name!r}.", "Choose another name.")
    if not callable(load):
        raise OptionError(f"load is a {type(load).__name__}.", "Give a function.")
    _REGISTERED.add(name)
    NAMED[name] = Named(summary, "", _own(name, load))


_REGISTERED: set[str] = set()


def _own(name: str, load: Callable[..., Any]) -> Callable[[DataSettings, Path], Data]:
    def read(settings: DataSettings, folder: Path) -> Data:
        from opteq.data.dataset import Data, check_labels

        home = folder if settings.path is None else Path(settings.path)
        found = load(home) if inspect.signature(load).parameters else load()
        if not isinstance(found, Data):
            raise DataError(
                f"{name} returned a {type(found).__name__}, not Data.",
                "Return opteq.data.memory_data(train=(images, labels), test=(images, labels)).",
            )
        if found.task == "classification":
            for part, images in (("training", found.train), ("test", found.test)):
                check_labels(images.class_labels(), len(found.classes), f"{name}, {part} images,")
        return found

    return read


def load_data(settings: DataSettings | str, data_dir: Path | str | None = None) -> Data:
    """A dataset as the settings describe it: split and limited.

    >>> len(load_data("digits").test)
    360
    """
    from opteq.data.settings import DataSettings
    from opteq.data.splits import even_odd_split, known_unknown, limited

    if isinstance(settings, str):
        settings = DataSettings(name=settings)
    found = named(settings.name)
    if settings.split == "super_classes" and settings.name not in ("cifar100", "digits"):
        raise OptionError(
            "Only cifar100 and digits have super-classes.", "Use data.split=standard."
        )
    if settings.path is not None and settings.name in NAMED and not _has_path(settings.name):
        raise OptionError(
            f"{settings.name} is not read from data.path.",
            "For your own images: opteq train photos --path DIR. Where data sets are is a matter "
            "of --data-dir.",
        )
    if settings.path is None and settings.name in _OWN and not is_given(data_dir):
        raise DataError(
            f"data.name={settings.name} stands for images of your own, and nothing says where they "
            "are.",
            "Give their folder: --path my_photos (path= in Python), or --data-dir my_photos.",
        )
    data = found.load(settings, data_folder(Path(data_dir) if data_dir else None))
    _warn_if_incomplete(data, settings, found.complete)
    if settings.split == "five_known":
        data = known_unknown(data, range(5))
    if settings.split == "super_classes" and settings.name == "digits":
        data = even_odd_split(data)
    return _replaced(
        data,
        train=limited(data.train, settings.limit_train),
        test=limited(data.test, settings.limit_test),
    )


# Images of a user's own.
_OWN = ("folder", "pairs", "photos")


def _has_path(name: str) -> bool:
    return name in (*_OWN, "bsd", GIVEN) or name in _REGISTERED


def _warn_if_incomplete(
    data: Data, settings: DataSettings, complete: tuple[int, int] | None
) -> None:
    """An interrupted unpacking by hand leaves a folder that looks like the data."""
    if complete is None or settings.split != "standard":
        return
    found = len(data.train), len(data.test)
    if found != complete:
        warnings.warn(
            f"{data.name} has {found[0]:,} training and {found[1]:,} test images here; the "
            f"complete data set has {complete[0]:,} and {complete[1]:,}. Unpack it again unless "
            "this is intended.",
            DataWarning,
            stacklevel=3,
        )


def _replaced(data: Data, **changes: Any) -> Data:
    from dataclasses import replace

    return replace(data, **changes)


def _digits(settings: DataSettings, folder: Path) -> Data:
    from opteq.data.digits import load_digits

    return load_digits()


def _mnist(settings: DataSettings, folder: Path) -> Data:
    from opteq.data.idx import load_mnist

    return load_mnist(folder, download=settings.download)


def _fashion_mnist(settings: DataSettings, folder: Path) -> Data:
    from opteq.data.idx import load_fashion_mnist

    return load_fashion_mnist(folder, download=settings.download)


def _cifar10(settings: DataSettings, folder: Path) -> Data:
    from opteq.data.cifar import load_cifar10

    return load_cifar10(folder, download=settings.download)


def _cifar100(settings: DataSettings, folder: Path) -> Data:
    from opteq.data.cifar import load_cifar100, read_cifar100
    from opteq.data.dataset import Data
    from opteq.data.splits import super_class_split

    if settings.split != "super_classes":
        return load_cifar100(folder, labels=settings.labels, download=settings.download)
    train, test, names = read_cifar100(folder, download=settings.download)
    sets = super_class_split(train, test)
    classes = names[0] or tuple(str(i) for i in range(20))
    return Data("cifar100", sets[0], sets[1], classes, unseen=sets[2])


def _imagenette(settings: DataSettings, folder: Path) -> Data:
    from opteq.data.folders import load_imagenette

    return load_imagenette(folder, size=settings.side(256), download=settings.download)


def _image_folder(name: str, default: int) -> Callable[[DataSettings, Path], Data]:
    def load(settings: DataSettings, folder: Path) -> Data:
        from opteq.data.folders import load_image_folder

        home = folder if settings.path is None else Path(settings.path)
        if name != "folder":
            home = folder / name
        return load_image_folder(
            home,
            size=settings.side(default),
            name=name,
            test=settings.test,
            seed=settings.split_seed,
        )

    return load


def _pairs(settings: DataSettings, folder: Path) -> Data:
    from opteq.data.folders import load_pairs

    if settings.classes is None:
        raise OptionError("Label maps do not say how many classes there are.", "Set data.classes.")
    return load_pairs(
        folder if settings.path is None else Path(settings.path),
        classes=settings.classes,
        void=settings.void,
        size=settings.pair_size(),
    )


def _cityscapes(settings: DataSettings, folder: Path) -> Data:
    from opteq.data.folders import load_cityscapes

    return load_cityscapes(folder, size=settings.pair_size())


def _mazes(settings: DataSettings, folder: Path) -> Data:
    from opteq.data.mazes import load_mazes

    return load_mazes(settings.side(13))


def _bsd(settings: DataSettings, folder: Path) -> Data:
    from opteq.data.photographs import load_bsd

    return load_bsd(folder if settings.path is None else Path(settings.path))


def _photos(settings: DataSettings, folder: Path) -> Data:
    from opteq.data.photographs import load_photographs

    home = folder if settings.path is None else Path(settings.path)
    return load_photographs(home, settings.pair_size() or (180, 180))


def _given(settings: DataSettings, folder: Path) -> Data:
    raise DataError(
        "This run was trained on images given in Python, which it does not keep.",
        "Give them again: opteq.evaluate(run, data=...), opteq.train(resume=True, data=...).",
    )


def _fake(settings: DataSettings, folder: Path) -> Data:
    from opteq.data.fake import fake_data

    if settings.shape is None or settings.classes is None:
        raise OptionError(
            "Random images need a shape and a number of classes.",
            "Set data.shape=[3,32,32] and data.classes=10.",
        )
    task = "segmentation" if settings.segmentation else "classification"
    return fake_data(settings.shape, settings.classes, task=task)


NAMED = {
    "digits": Named("1,797 handwritten digits, 8x8, bundled", "", _digits),
    "mnist": Named("60,000 + 10,000 handwritten digits, 28x28", "mnist", _mnist, (60_000, 10_000)),
    "fashion-mnist": Named(
        "60,000 + 10,000 pieces of clothing, 28x28",
        "fashion-mnist",
        _fashion_mnist,
        (60_000, 10_000),
    ),
    "cifar10": Named(
        "50,000 + 10,000 photographs, 32x32, 10 classes",
        "cifar-10-batches-bin",
        _cifar10,
        (50_000, 10_000),
    ),
    "cifar100": Named(
        "50,000 + 10,000 photographs, 32x32, 100 classes in 20 super-classes",
        "cifar-100-binary",
        _cifar100,
        (50_000, 10_000),
    ),
    "imagenette": Named(
        "9,469 + 3,925 photographs, 10 classes of ImageNet",
        "imagenette2",
        _imagenette,
        (9_469, 3_925),
    ),
    "imagenet100": Named(
        "100 classes of ImageNet, folders train and val",
        "imagenet100",
        _image_folder("imagenet100", 256),
    ),
    "imagenet": Named(
        "1,000 classes of ImageNet, folders train and val",
        "imagenet",
        _image_folder("imagenet", 224),
    ),
    "cityscapes": Named("2,975 + 500 street scenes with 19 classes", "cityscapes", _cityscapes),
    "folder": Named(
        "your own images: CLASS/*, or train/CLASS/* and val/CLASS/*",
        "",
        _image_folder("folder", 32),
    ),
    "pairs": Named("your own images/ and labels/ for segmentation", "", _pairs),
    "bsd": Named("400 + 68 grey photographs to restore, 180x180 and 321x481", "bsd", _bsd),
    "photos": Named("your own photographs in one folder, to learn how images look", "", _photos),
    "mazes": Named("2,000 + 200 mazes with the way through them, made on the fly", "", _mazes),
    GIVEN: Named("images that were handed over in Python", "", _given),
    "fake": Named("random images, to try a recipe without its data", "", _fake),
}
