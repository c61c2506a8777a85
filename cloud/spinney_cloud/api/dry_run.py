"""What a subscription would have delivered."""

from __future__ import annotations

from typing import Any

from .context import Api
from .errors import unavailable


async def dry_run(api: Api, tenant: str, owner: str, sid: str, source: Any, last: str) -> dict[str, Any]:
    """Not there yet."""
    del api, tenant, owner, sid, source, last
    raise unavailable("there is no dry run yet")
