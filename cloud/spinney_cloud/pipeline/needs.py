"""What the pipeline's commands need beyond the base, asked before any of it is imported."""

from __future__ import annotations

from importlib.util import find_spec

EXTRA = "spinney[pipeline]"
LAKE = ("pydantic", "pyarrow", "deltalake")
PIPELINE = (*LAKE, "pyspark", "orjson", "psutil", "nats", "h3")


def missing(modules: tuple[str, ...] = PIPELINE) -> str | None:
    """Which of these packages are not there, and how to have them; None if all are."""
    names = [name for name in modules if find_spec(name) is None]
    if not names:
        return None
    return f"not installed: {', '.join(names)}; have all it needs: pip install '{EXTRA}'"
