"""`spinney up --source ble` with an adapter of a virtual radio in place of this machine's own.

Called with where the radio serves adapters and the name of one; then as `spinney up` is.
"""

from __future__ import annotations

import sys
from typing import Any

from spinney_tools.up import main, running
from spinney_tools.up.city import adapter_address
from spinney_tools.up.stack import Part, Stack

_part = Stack._part


def _on_the_air(stack: Stack, name: str, module: str, *arguments: str, **more: Any) -> Part:
    if module != "spinney_mobile":
        return _part(stack, name, module, *arguments, **more)
    return _part(stack, name, "spinney_tools.up.mobile", sockets, adapter, adapter_address(0), *arguments)


def _is_there(*_: Any) -> None:
    """There is an adapter: `spinney mobile doctor` would look for the machine's."""


if __name__ == "__main__":
    _program, sockets, adapter, *rest = sys.argv
    Stack._part = _on_the_air  # type: ignore[method-assign]
    running._look_at_adapter = _is_there
    sys.exit(main(rest))
