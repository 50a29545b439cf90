"""The paths of the HTTP API."""

from eden_memory.api.http.routes import events, reading, users, writing

ROUTERS = (reading.router, writing.router, events.router, users.router)
