"""The OpenAPI document: what FastAPI knows, and the errors and keys that every request has in common."""

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from eden_memory.api.http.problem import MEDIA_TYPE, Problem

Schema = dict[str, Any]
TITLE, VERSION = "Eden Memory", "1"
ABOUT = """\
Long-term memory for AI agents, formed in the background from chat writes.

Ids are those of your application: plain text, or typed where they are something else or look typed:
`s.TEXT` (percent-encoded), `i.NUMBER`, `u.UUID`, `o.OBJECTID`. 5 and "5" are two ids: `i.5` and `s.5`.
What changes memory is answered with 202: it goes the way of a chat message, behind everything written before it.
"""
ERRORS: Mapping[int, str] = {
    400: "The request cannot be read",
    401: "A valid key is needed",
    403: "The key does not reach this, or Host or Origin are not served without one",
    404: "There is nothing of this id that may be seen here",
    409: "It stands at another version than expected, or is not possible as things are set up",
    413: "The body is too large",
    422: "The request is not valid",
    429: "Too many requests, or event streams; see Retry-After",
    500: "The server failed",
    503: "The database or a model does not answer; see Retry-After",
}
KEYS: Mapping[str, Schema] = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "`Authorization: Bearer eden_…`, a key that `eden keys create` made.",
    },
    "header": {"type": "apiKey", "in": "header", "name": "X-Eden-Key"},
}
CONTEXT = "/v1/agents/{agent}/context"
EXAMPLE_XML = (
    "<MemoryContext>\n  <Facts>\n    - [user] Ada works in Lisbon. (3d ago)\n  </Facts>\n</MemoryContext>"
)
EXPORT = {
    "type": "object",
    "required": ["user", "items"],
    "properties": {
        "user": {"type": "string"},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["collection", "document"],
                "properties": {"collection": {"type": "string"}, "document": {"type": "object"}},
            },
        },
    },
}


def use(app: FastAPI) -> None:
    """Serve the document at /openapi.json."""

    def document() -> Schema:
        if app.openapi_schema is None:
            app.openapi_schema = document_of(app)
        return app.openapi_schema

    app.openapi = document


def document_of(app: FastAPI) -> Schema:
    """Return the OpenAPI 3.1 document."""
    document = get_openapi(title=TITLE, version=VERSION, description=ABOUT, routes=app.routes)
    parts = document.setdefault("components", {})
    parts["securitySchemes"] = dict(KEYS)
    parts["responses"] = {_name(status): _error(said) for status, said in ERRORS.items()}
    schemas = parts.setdefault("schemas", {})
    made = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= made.pop("$defs", {}) | {"Problem": made}
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    document["security"] = [{"bearer": []}, {"header": []}, {}]
    for path, operation in _operations(document):
        if path.startswith(("/v1/agents", "/v1/users", "/v1/receipts", "/v1/webhooks")):
            operation["responses"] |= {str(status): _ref(status) for status in ERRORS}
    _context(document["paths"][CONTEXT]["get"]["responses"])
    _content(document, "/v1/agents/{agent}/events", "text/event-stream", {"type": "string"})
    _content(document, "/v1/users/{user}/export", "application/json", EXPORT)
    return document


def _operations(document: Schema) -> Iterator[tuple[str, Schema]]:
    for path, item in document["paths"].items():
        for operation in item.values():
            yield path, operation


def _context(responses: Schema) -> None:
    tag = {"ETag": {"schema": {"type": "string"}, "description": "For If-None-Match."}}
    content = {"application/xml": {"schema": {"type": "string"}, "example": EXAMPLE_XML}}
    responses["200"] = {"description": "The context", "headers": tag, "content": content}
    responses["204"] = {"description": "Nothing is remembered", "headers": tag}
    responses["304"] = {"description": "As If-None-Match has it", "headers": tag}


def _content(document: Schema, path: str, media_type: str, schema: Schema) -> None:
    document["paths"][path]["get"]["responses"]["200"]["content"] = {media_type: {"schema": schema}}


def _name(status: int) -> str:
    return f"Problem{status}"


def _ref(status: int) -> Schema:
    return {"$ref": f"#/components/responses/{_name(status)}"}


def _error(said: str) -> Schema:
    return {
        "description": said,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
