"""The C core's own tests: each program of tests/core/c, plain. `spinney check` runs them under sanitizers, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from spinney_tools.check.c_core import c_tests, run_c_tests
from spinney_tools.check.step import Place, StepFailed

FLAGS = ("-std=c11", "-ffp-contract=off", "-O2")


@pytest.mark.slow
@pytest.mark.needs("gcc")
def test_every_c_test_holds(tmp_path: Path) -> None:
    place = Place(Path(__file__).parents[2], tmp_path)
    try:
        run_c_tests(c_tests(place), FLAGS, place, tmp_path)
    except StepFailed as failure:
        pytest.fail(str(failure), pytrace=False)
