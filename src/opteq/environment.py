"""A record of versions, machine and command, for those who want to repeat a result."""

from __future__ import annotations

import platform
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from opteq import __version__


def environment() -> dict[str, Any]:
    """The versions in use, the machine and the command."""
    import numpy
    import torch

    return {
        "opteq": __version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "free_disk_gb": round(shutil.disk_usage(Path.cwd()).free / 1e9, 1),
        "command": command(),
    }


def command() -> str:
    """What was typed, so that it can be typed again."""
    script = Path(sys.argv[0])
    start = ["python", script.name] if script.suffix == ".py" else [script.name]
    if script.stem == "opteq" or Path(__file__).resolve().parent in script.resolve().parents:
        start = ["opteq"]
    return shlex.join([*start, *sys.argv[1:]])
