"""Return the gateway's own errors as problem+json that OpenAI's clients can read, too."""

import orjson
from starlette.responses import Response

from eden_memory.access.admission_store import Refused, TooMany, Turned
from eden_memory.errors import EdenError, Invalid, NotFound

TITLES = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    413: "Too large",
    429: "Too many requests",
    502: "Provider away",
    503: "Not set up",
    504: "Provider silent",
}


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    """An RFC 9457 problem, with the member `error` as OpenAI words its own."""
    error = {"message": detail, "type": "eden_gateway", "param": None, "code": f"eden_{status}"}
    body = {
        "type": "about:blank",
        "title": TITLES[status],
        "status": status,
        "detail": detail,
        "error": error,
    }
    return Response(orjson.dumps(body), status, headers, "application/problem+json")


def problem_of(error: EdenError) -> Response:
    """Return the response for an error; it does not reveal what the caller may not see."""
    detail = f"{error.what}. {error.hint}" if error.hint else error.what
    if isinstance(error, TooMany):
        return problem(429, detail, {"retry-after": str(max(1, round(error.seconds)))})
    if isinstance(error, Turned):
        return problem(error.status, detail)
    if isinstance(error, Refused | NotFound):
        return problem(403, detail)
    return problem(400 if isinstance(error, Invalid) else 503, detail)
