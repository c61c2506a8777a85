"""A whole pipeline in a process to be killed: `ingest_driver.py URL FOLDER ROWS SECONDS`, with ROWS of a batch at most,
and SECONDS between its rounds: windows, maintenance, what it tells the lake of the log and of the subscriptions.

Says, whenever it has come further, up to which record all is answered, and what its batches take. Once its standard
input ends it stops as a pipeline does, and says in its last line how far the lake is, and how far matching is.
"""

from __future__ import annotations

import sys
import threading
from functools import partial
from pathlib import Path
from unittest.mock import patch

from spinney_cloud.pipeline import ingest, matching_query, running
from spinney_cloud.pipeline.direct_get import LogServer
from spinney_cloud.pipeline.ingest import IngestError, Plan
from spinney_cloud.pipeline.maintenance import Policy
from spinney_cloud.pipeline.matching_query import MatchingPlan
from spinney_cloud.pipeline.running import Job, Run, Spark, open_session
from spinney_cloud.pipeline.scan import Limits
from spinney_cloud.pipeline.session import leave, stop
from spinney_cloud.pipeline.subscriptions import Where
from spinney_cloud.pipeline.windows import WindowPlan
from spinney_cloud.pipeline.windows_part import WindowsPart

HEAP = "1g"
PLAN = WindowPlan((60, 900))
LOOK_SECONDS = 0.02


def main(url: str, folder: Path, rows: int, seconds: float) -> None:
    server, lake, limits = LogServer(url), str(folder / "lake"), Limits(rows)
    job = Job(
        lake,
        Plan(server, limits=limits, trigger_seconds=0),
        MatchingPlan(Where(server, lake), str(folder / "matching"), limits=limits, trigger_seconds=0),
        Policy(every_seconds=seconds),
        Spark(folder / "spark", heap=HEAP),
        windows=True,
    )
    spark = []
    run = Run(job, lambda: spark.append(open_session(job.spark)) or spark[0])
    failed: list[str] = []
    working = threading.Thread(target=_run, args=(run, failed))
    stopping = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stopping.set()), daemon=True).start()
    working.start()
    said = (-1, 0.0)
    while working.is_alive() and not stopping.wait(LOOK_SECONDS):
        if (now := _look(run)) != said:
            said = now
            print(*said, flush=True)
    run.stop()
    working.join()
    if failed or run.ingest is None or run.matching is None or run.windows is None or run.maintenance is None:
        leave(3)
    run.windows.step()
    run.maintenance.round()
    print(run.ingest.status.sequence, run.matching.status.sequence, flush=True)
    stop(spark[0])


def _run(run: Run, failed: list[str]) -> None:
    try:
        run.run()
    except IngestError as error:
        failed.append(str(error))
        print("ended:", error, flush=True)


def _look(run: Run) -> tuple[int, float]:
    if run.ingest is None or run.matching is None:
        return 0, 0.0
    both = (run.ingest.status, run.matching.status)
    return min(each.sequence for each in both), max(each.batch_seconds for each in both)


if __name__ == "__main__":
    url, folder, rows, seconds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    with (
        patch.object(running, "WindowsPart", partial(WindowsPart, plan=PLAN, every_seconds=2 * seconds)),
        patch.object(matching_query, "SAVE_SECONDS", seconds),
        patch.object(ingest, "ADVANCE_SECONDS", seconds),
    ):
        main(url, folder, rows, seconds)
