"""The page at /dashboard: a living map, subscriptions made by hand, what is sent and what is spared.

NiceGUI gives the shell; what is alive comes by one WebSocket (see live) and the API, and is drawn by the small
modules in static/.
"""

from .mount import dashboard

__all__ = ["dashboard"]
