"""What Spark forks its Python workers from (spark.python.daemon.module): with most of what they need in memory already.

Each worker would else import it anew, for a second or more, at every query and for every task that finds none idle.
Nothing here may start a thread, for what is forked would lack it: so pyarrow is left to the workers.
"""

from __future__ import annotations

import gc
import os
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
    gc.freeze()  # a worker collects garbage after every task, which would else look through all of it each time


if __name__ == "__main__":
    preload()
    daemon.manager()
