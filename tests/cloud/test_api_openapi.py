"""OpenAPI tells the truth: schemathesis tries what it allows and what it forbids, with the real processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from api_kit import Cloud, cloud
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.specs.openapi.checks import positive_data_acceptance

from spinney_cloud.api.routes_operations import PROCESSES

EXAMPLES = 15
SOAK_EXAMPLES = 500
STREAMS = "/notifications"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud(tmp_path_factory.mktemp("whole"), *PROCESSES) as running:
        yield running


@pytest.fixture(scope="module")
def described(whole: Cloud) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_url(f"{whole.url}/openapi.json").exclude(path_regex=STREAMS)


MODES = pytest.mark.parametrize("mode", schemathesis.GenerationMode, ids=lambda mode: mode.value)


@pytest.mark.slow
@MODES
def test_each_operation_does_as_it_says(described: schemathesis.BaseSchema, mode: schemathesis.GenerationMode) -> None:
    try_all(described, mode, settings(max_examples=EXAMPLES, derandomize=True))


@MODES
@pytest.mark.soak
def test_each_operation_does_as_it_says_for_long(
    described: schemathesis.BaseSchema, mode: schemathesis.GenerationMode
) -> None:
    try_all(described, mode, settings(max_examples=SOAK_EXAMPLES))


def try_all(described: schemathesis.BaseSchema, mode: schemathesis.GenerationMode, how: settings) -> None:
    """All operations, and what is untrue of each."""
    untrue = []
    for found in described.get_all_operations():
        operation = found.ok()
        try:
            _try(operation, mode, how)
        except (schemathesis.errors.FailureGroup, AssertionError) as failure:
            untrue.append(f"{operation.label}: {failure}")
        except Unsatisfiable:  # there is nothing that it forbids
            assert mode is schemathesis.GenerationMode.NEGATIVE
    assert not untrue, "\n\n".join(untrue)


def _try(operation: schemathesis.APIOperation, mode: schemathesis.GenerationMode, how: settings) -> None:
    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(how, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    def holds(case: schemathesis.Case) -> None:
        # that a text is a subscription, or bytes a CBOR pack, is more than a schema can say
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    holds()
