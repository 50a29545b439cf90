"""The paths of the HTTP API."""

from eden_memory.api.http.routes import correcting, events, reading, receipts, streams, users, writing

ROUTERS = (
    reading.router,
    writing.router,
    correcting.router,
    streams.router,
    events.router,
    users.router,
    receipts.router,
)
