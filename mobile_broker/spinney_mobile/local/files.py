"""What the local port keeps in the data directory: whole files of JSON, for this broker's user alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def save(file: Path, item: Any) -> None:
    """In one step, and on the disk; OSError if that cannot be."""
    part = file.with_name(f".{file.name}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        json.dump(item, out)
        out.flush()
        os.fsync(out.fileno())
    part.replace(file)
