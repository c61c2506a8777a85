"""What the API answers when it refuses: RFC 9457's problem+json, from every door alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import Response

from spinney import SyntaxError

MEDIA_TYPE = "application/problem+json"
MAX_ERRORS = 100
"""Of one request's body, told; there may be more."""


class Mistake(BaseModel):
    """One thing that is wrong in a request."""

    where: str = Field(description="The place in the request, such as `body.labels.room`")
    message: str


class RefusedRow(BaseModel):
    """A publication that was not taken."""

    row: int | None = Field(default=None, description="Where it stands, from 0; null: the whole payload")
    reason: str
    id: str | None = None


class ProblemDetail(BaseModel):
    """Why a request was refused (RFC 9457)."""

    model_config = ConfigDict(title="Problem")

    type: str = "about:blank"
    title: str
    status: int = Field(ge=400, le=599)
    detail: str
    line: int | None = Field(default=None, description="Of a subscription that cannot be read")
    column: int | None = None
    path: str | None = Field(default=None, description="The place in a subscription's JSON form")
    expected: str | None = None
    found: str | None = None
    errors: list[Mistake] | None = None
    refused: list[RefusedRow] | None = None


class Problem(HTTPException):
    """A refusal. Fields are those of ProblemDetail that this one has beside status and detail."""

    def __init__(
        self, status: int, detail: str, *, headers: Mapping[str, str] | None = None, fields: Mapping[str, Any] = {}
    ) -> None:
        super().__init__(status, detail, dict(headers) if headers else None)
        self.fields = {name: value for name, value in fields.items() if value is not None and value != ""}


def bad_subscription(error: SyntaxError) -> Problem:
    """For a subscription that cannot be read: where, and what was expected."""
    names = ("line", "column", "path", "expected", "found")
    return Problem(422, error.message, fields={name: getattr(error, name) for name in names})


def not_found(what: str) -> Problem:
    """For what is not there, or is another tenant's."""
    return Problem(404, f"there is no {what}")


def unavailable(detail: str) -> Problem:
    """For what another process or the log cannot do at this moment."""
    return Problem(503, detail, headers={"Retry-After": "1"})


_WHAT = {
    400: "The request cannot be read",
    401: "Who asks is not known",
    403: "Not allowed for this role or from this page",
    404: "Not there, or another tenant's",
    408: "The body did not come in time",
    409: "It is there already",
    413: "The body is too large",
    415: "The content type or encoding is not known",
    422: "Something in the request is not as it must be",
    429: "Too much at once",
    503: "Another process or the log cannot do it now",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Answers for a route's `responses`, so that OpenAPI tells them."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": _WHAT[status], "content": content} for status in sorted(statuses)}


def answer(problem: StarletteHTTPException) -> Response:
    """The response for a refusal."""
    status = problem.status_code
    body: dict[str, Any] = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    body |= {"detail": str(problem.detail), **getattr(problem, "fields", {})}
    return Response(orjson.dumps(body, default=str), status, dict(problem.headers or {}), MEDIA_TYPE)


def _validation(errors: Sequence[Mapping[str, Any]]) -> Problem:
    unreadable = [error for error in errors if error["type"] == "json_invalid"]
    if unreadable:
        return Problem(400, f"the body is no JSON: {unreadable[0]['ctx']['error']}")
    mistakes = [
        {"where": ".".join(str(part) for part in error["loc"]), "message": error["msg"]}
        for error in errors[:MAX_ERRORS]
    ]
    first = mistakes[0]
    return Problem(422, f"{first['where']}: {first['message']}", fields={"errors": mistakes})


def install(app: FastAPI) -> None:
    """Make the application answer so, whatever refuses."""

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, StarletteHTTPException)
        return answer(error)

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return answer(_validation(error.errors()))

    async def failed(_: Request, error: Exception) -> Response:
        return answer(HTTPException(500, f"internal error; see the cloud's log: {type(error).__name__}"))

    app.add_exception_handler(StarletteHTTPException, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, failed)
