"""The data pipeline: PySpark on the log. Needs spinney[pipeline]."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Spark's workers import this, and need nothing of it
    from ..service import Service


async def serve(service: Service) -> None:
    """Run the pipeline beside a broker until told to stop."""
    from .running_loop import serve as serve_pipeline

    await serve_pipeline(service)
