"""What a training run reports along the way."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console

from opteq.training.scores import part_tested


class Progress:
    """Called by the loop; this one shows nothing."""

    def begin(self, title: str, epochs: int, steps_per_epoch: int) -> None:
        """Training starts or resumes."""

    def step(self, epoch: int, step: int, figures: dict[str, float]) -> None:
        """`step` steps of an epoch are done."""

    def epoch(self, record: dict[str, Any]) -> None:
        """An epoch is done."""

    def end(self) -> None:
        """Training is over or was stopped."""


class Plain(Progress):
    """A line per epoch, for logs."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.epochs = 0

    def begin(self, title: str, epochs: int, steps_per_epoch: int) -> None:
        self.epochs = epochs
        self.console.print(title)

    def epoch(self, record: dict[str, Any]) -> None:
        self.console.print(epoch_line(record, self.epochs))


class LiveDisplay(Progress):
    """A bar and the figures of the moment, on a terminal."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
        from rich.table import Column

        self.console = console
        self.epochs = self.per_epoch = 0
        self.bar = Bar(
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=12),
            TextColumn("[dim]left", table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            # What a narrow terminal has no room for.
            TextColumn(
                "{task.fields[figures]}",
                table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
            ),
            console=console,
            expand=True,
        )
        self.task = self.bar.add_task("starting", total=None, figures="")

    def begin(self, title: str, epochs: int, steps_per_epoch: int) -> None:
        self.epochs, self.per_epoch = epochs, steps_per_epoch
        self.console.print(title)
        self.bar.reset(self.task, total=epochs * steps_per_epoch)
        self.bar.start()

    def step(self, epoch: int, step: int, figures: dict[str, float]) -> None:
        self.bar.update(
            self.task,
            completed=epoch * self.per_epoch + step,
            description=f"epoch {epoch + 1}/{self.epochs}",
            figures=short(figures),
        )

    def epoch(self, record: dict[str, Any]) -> None:
        self.bar.console.print(epoch_line(record, self.epochs))
        self.bar.update(self.task, completed=record["epoch"] * self.per_epoch)

    def end(self) -> None:
        self.bar.stop()


def progress_for(console: Console) -> Progress:
    """The live display on a terminal, lines elsewhere."""
    return LiveDisplay(console) if console.is_terminal else Plain(console)


def epoch_line(record: dict[str, Any], epochs: int) -> str:
    """The line that reports a finished epoch."""
    parts = [f"epoch {record['epoch']:>3}/{epochs}", f"train {short(record['train'])}"]
    if "test" in record:
        part = part_tested(record["test"])
        parts.append(f"test{f' ({part})' * bool(part)} {short(record['test'])}")
    parts.append(f"{record['images_per_second']:,.0f} images/s")
    return " | ".join(parts)


def short(figures: dict[str, Any]) -> str:
    """The figures in a few words."""
    words = []
    if "loss" in figures:
        words.append(f"loss {figures['loss']:.3{'g' if 'psnr' in figures else 'f'}}")
    if "accuracy" in figures:
        words.append(f"acc {100 * figures['accuracy']:.1f}%")
    if "mean_iou" in figures:
        words.append(f"mIoU {100 * figures['mean_iou']:.1f}%")
    if "psnr" in figures:
        words.append(f"PSNR {figures['psnr']:.2f} dB")
    if "steps" in figures:
        words.append(f"steps {figures['steps']:.1f} residual {figures['residual']:.0e}")
        if figures["unconverged"]:
            words.append(f"unconverged {100 * figures['unconverged']:.1f}%")
    if "feedback" in figures:
        words.append(f"feedback {100 * figures['feedback']:.0f}%")
    if "images_per_second" in figures:
        words.append(f"{figures['images_per_second']:,.0f} images/s")
    return " ".join(words)


def new_console(*, stderr: bool = False) -> Console:
    """A console that prints text as it is: names of folders and classes may hold what rich would
    take for markup, and lines are for pipes as much as for terminals."""
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True)


class Clock:
    """Rings when some time has passed since it last rang."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.last = seconds, time.monotonic()

    def rings(self) -> bool:
        """Whether the time has come; if so, it starts again."""
        now = time.monotonic()
        if now - self.last < self.seconds:
            return False
        self.last = now
        return True
