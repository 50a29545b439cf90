"""The paths of the HTTP API."""

from eden_memory.api.http.routes import correcting, events, reading, users, writing

ROUTERS = (reading.router, writing.router, correcting.router, events.router, users.router)
