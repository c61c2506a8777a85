"""The status page, and the same as JSON for the command line."""

from .app import Source, WebApp
from .server import WebServer, listen

__all__ = ["Source", "WebApp", "WebServer", "listen"]
