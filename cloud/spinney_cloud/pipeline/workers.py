"""What Spark forks its Python workers from (spark.python.daemon.module): with most of what they need in memory already.

Each worker would else import it anew, for a second or more, at every query and for every task that finds none idle.
Nothing here may start a thread, for what is forked would lack it: so pyarrow is left to the workers.
"""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable
from importlib import import_module

from pyspark import daemon

MODULES = (
    "spinney_cloud.cells",
    "spinney_cloud.engine",
    "spinney_cloud.log_reader",
    "spinney_cloud.records",
    "spinney_cloud.service",
    "spinney_cloud.subscription_request",
    "numpy",
    "pyspark.sql.datasource_internal",
    "pyspark.sql.streaming.stateful_processor_util",
)


def preload() -> None:
    """Import what workers import and what starts no thread."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's; nothing here multiplies matrices
    for name in MODULES:
        import_module(name)
    _keep()


def _keep() -> None:
    """Garbage is collected after every task, which would else look through all that is in memory by now each time."""
    gc.collect()
    gc.freeze()


def keeping(work: Callable[[socket.socket, bool], int]) -> Callable[[socket.socket, bool], int]:
    """A worker's work on one task; after its first it has imported and connected what it needs for the others, too."""
    is_first = True

    def worked(sock: socket.socket, authenticated: bool) -> int:
        nonlocal is_first
        _acknowledge_at_once(sock)
        code = work(sock, authenticated)
        if is_first:
            is_first = False
            _keep()
        return code

    return worked


def _acknowledge_at_once(sock: socket.socket) -> None:
    """Java sends a task in two pieces, the second when it knows that the first has come; Linux tells it 40 ms later,
    for it waits whether we have something to say."""
    if hasattr(socket, "TCP_QUICKACK") and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


if __name__ == "__main__":
    preload()
    daemon.worker = keeping(daemon.worker)  # type: ignore[assignment]  # by position, as the manager calls it
    daemon.manager()
