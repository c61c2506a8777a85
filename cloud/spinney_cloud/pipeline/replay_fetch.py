"""What mobile brokers held back, for a replay of the lake: asked for by the cloud's HTTP API, and put among rows."""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported

from __future__ import annotations

import pyarrow as pa
import pyarrow.dataset as ds

from ..fetch.placing import Placing
from ..records import Run
from .lake import Lake
from .replay_rows import Wanted, days, within

_COLUMNS = ["log_seq", "log_row", "arrival", "source", "boot", "sequence"]


def look(lake: Lake, wanted: Wanted, placing: Placing) -> None:
    """Tell what was fetched of the numbers that the lake has of its sources."""
    data = lake.dataset()
    sources = pa.array(sorted(placing.sources), pa.string())
    for day in days(lake, wanted):
        where = within(wanted, day.date) & (ds.field("tenant") == wanted.tenant) & ds.field("source").isin(sources)
        rows = data.to_table(columns=_COLUMNS, filter=where)
        for row in rows.sort_by([("log_seq", "ascending"), ("log_row", "ascending")]).to_pylist():
            run = Run(row["source"], row["boot"], row["sequence"], 1, "", None, 1)
            placing.look(row["log_seq"], row["arrival"], (run,))
