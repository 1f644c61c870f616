"""Files that must be on disk before a dataset can be read."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opteq.errors import DataError


@dataclass(frozen=True)
class Archive:
    """Something to download: its address, its checksum and the folder or file it unpacks to."""

    url: str
    digest: str
    """`md5:...` or `sha256:...`."""
    unpacks_to: str

    @property
    def file(self) -> str:
        return self.url.rsplit("/", 1)[-1]


def is_given(folder: Path | str | None) -> bool:
    """Whether a user says where data is."""
    return folder is not None or bool(os.environ.get("OPTEQ_DATA"))


def data_folder(given: Path | None) -> Path:
    """`--data-dir`, else $OPTEQ_DATA, else the user's cache."""
    if given is not None:
        return given
    if is_given(None):
        return Path(os.environ["OPTEQ_DATA"])
    import pooch

    return Path(pooch.os_cache("opteq"))


def find_or_fetch(
    name: str,
    folder: Path,
    archives: Sequence[Archive],
    *,
    elsewhere: Sequence[Path] = (),
    download: bool = True,
) -> list[Path]:
    """The paths the archives unpack to: found in `folder` or one of the places `elsewhere`, or
    downloaded, verified and unpacked into `folder`."""
    found = []
    for archive in archives:
        places = [folder / archive.unpacks_to, *(p / archive.unpacks_to for p in elsewhere)]
        here = next((place for place in places if place.exists()), None)
        found.append(_fetch(name, folder, archive) if here is None and download else here)
    missing = [a for a, path in zip(archives, found, strict=True) if path is None]
    if missing:
        raise _absent(name, folder, missing[0], "it is not on this machine")
    return [path for path in found if path is not None]


def _fetch(name: str, folder: Path, archive: Archive) -> Path:
    import pooch

    try:
        folder.mkdir(parents=True, exist_ok=True)
        # pooch writes to a temporary file, checks the sum and only then moves it into place.
        pooch.retrieve(
            archive.url,
            archive.digest,
            fname=archive.file,
            path=folder,
            progressbar=False,
            downloader=pooch.HTTPDownloader(  # type: ignore[arg-type]
                progressbar=_ProgressBar(archive.file),  # type: ignore[arg-type]
                timeout=30,
            ),
        )
    except ValueError as error:
        raise DataError(
            f"{archive.url} does not have the expected checksum ({str(error).splitlines()[0]}).",
            "Try again later, or download it from its owner's page by hand.",
        ) from None
    except OSError as error:
        words = str(error).partition(" with url: ")[0] or type(error).__name__
        reason = words.splitlines()[0][:120]
        raise _absent(name, folder, archive, f"the download failed: {reason}") from None
    return unpack(folder / archive.file, folder / archive.unpacks_to)


def unpack(packed: Path, target: Path) -> Path:
    """Unpack an archive, or a zipped file, to `target`: beside it first, then moved there in one
    step when complete, so that an interrupted unpacking is never mistaken for the data."""
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=target.parent) as name:
        aside = Path(name)
        try:
            if packed.name.endswith((".tar.gz", ".tgz", ".tar")):
                with tarfile.open(packed) as archive:
                    archive.extractall(aside, filter="data")
                    lost = [m.name for m in archive.getmembers() if not (aside / m.name).exists()]
            else:
                with gzip.open(packed) as source, (aside / target.name).open("wb") as out:
                    shutil.copyfileobj(source, out)
                lost = []
        except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
            reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
            raise DataError(
                f"{packed} cannot be unpacked ({reason}).",
                "Free some space, or remove the file to download it again.",
            ) from None
        if lost or not (aside / target.name).exists():
            raise DataError(
                f"{packed} unpacked to something other than a complete {target.name}.",
                f"Unpack it by hand so that {target} exists.",
            )
        try:
            (aside / target.name).rename(target)
        except OSError:  # another process was faster
            if not target.exists():
                raise
    return target


def _absent(name: str, folder: Path, archive: Archive, why: str) -> DataError:
    return DataError(
        f"{name} is not available: {why}.",
        f"Download {archive.url} on a machine with internet access, unpack it so that "
        f"{folder / archive.unpacks_to} exists, or say where the data is with --data-dir.",
    )


class _ProgressBar:
    """What pooch reports about a download, as a rich progress bar."""

    def __init__(self, label: str) -> None:
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

        self.total = 0
        self._bar = Progress(
            "{task.description}", BarColumn(), DownloadColumn(), TimeRemainingColumn()
        )
        self._task = self._bar.add_task(label, total=None)

    def update(self, amount: int) -> None:
        if not self._bar.live.is_started:
            self._bar.start()
        self._bar.update(self._task, total=self.total or None, advance=amount)

    def reset(self) -> None:
        self._bar.reset(self._task)

    def close(self) -> None:
        self._bar.stop()
