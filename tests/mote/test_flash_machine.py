"""Which machine runs filters, where the native one was compiled for another processor."""

from __future__ import annotations

import sys
import types

import pytest
from spinney_mote import vm
from spinney_mote.mote import machine_of_programs


def test_native_code_for_another_processor_leaves_filters_to_the_portable_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    native = types.ModuleType("spinney_mote.vm_viper")

    def refuse(_name: str) -> object:
        raise ValueError("incompatible .mpy arch")

    native.__getattr__ = refuse  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "spinney_mote.vm_viper", native)
    assert machine_of_programs() is vm.run
