"""The application: its routes, what all of them have in common, and what OpenAPI tells of it."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from . import (
    routes_discovery,
    routes_explain,
    routes_fetch,
    routes_notifications,
    routes_operations,
    routes_publications,
    routes_sessions,
    routes_subscriptions,
)
from .bodies import BodyLimit
from .context import Api
from .errors import ProblemDetail, install, problems

VERSION = "1"
_DESCRIPTION = """Publish sensor readings, subscribe to what matters, see why. Errors are problem+json (RFC 9457).

Callers say who they are by a bearer token, or by name and password; on a machine without users, its own programs need
not. Each sees its own tenant only."""


def make_app(api: Api) -> FastAPI:
    """The application for one process."""
    app = FastAPI(
        title="Spinney",
        version=VERSION,
        description=_DESCRIPTION,
        openapi_url="/openapi.json",
        docs_url=None,  # FastAPI's pages load their scripts from another site
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.api = api
    install(app)
    for module in (
        routes_publications,
        routes_notifications,
        routes_subscriptions,
        routes_sessions,
        routes_explain,
        routes_fetch,
        routes_discovery,
    ):
        app.include_router(module.router, responses=problems(401, 403, 503))
    app.include_router(routes_operations.versioned, responses=problems(401, 403, 503))
    app.include_router(routes_operations.router)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]  # FastAPI's own way to change it
    app.add_middleware(BodyLimit, max_bytes=api.service.settings.http.max_body)
    return app


def _problem_schema(schemas: dict[str, Any]) -> dict[str, Any]:
    schema = ProblemDetail.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= schema.pop("$defs")
    return schema


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schemes = {"token": {"type": "http", "scheme": "bearer"}, "password": {"type": "http", "scheme": "basic"}}
        components = schema.setdefault("components", {})
        components["securitySchemes"] = schemes
        components["schemas"] |= {"Problem": _problem_schema(components["schemas"])}
        schema["security"] = [{"token": []}, {"password": []}, {}]
        app.openapi_schema = schema
    return app.openapi_schema
