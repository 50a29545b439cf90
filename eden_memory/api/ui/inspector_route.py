"""Requests of browsers: the key comes in a cookie, forms only from our own pages, errors are pages too."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pymongo.errors import PyMongoError
from starlette.datastructures import Headers

from eden_memory.access.admission_store import OTHER_SITES, Turned, Unknown, is_own_origin
from eden_memory.api.http.doors import AdmittedRoute
from eden_memory.api.http.problem import AGAIN_SECONDS, status_of
from eden_memory.api.ui.pages import error_page
from eden_memory.errors import EdenError, Invalid
from eden_memory.logs import LibraryLogger

log = LibraryLogger("eden.ui")
COOKIE = "eden_key"
SAFE_METHODS = ("GET", "HEAD")
T = TypeVar("T", bound=BaseModel)
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class _FromBrowsers(APIRoute):
    """Checks where a request comes from, and answers every error as a page."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            try:
                _demand_own_page(request)
                _leave_out_blanks(request)
                _show_key(request)
                return await handle(request)
            except Unknown as error:
                if request.method not in SAFE_METHODS:
                    return error_page(request, status_of(error), error.what, error.hint)
                return RedirectResponse(f"/ui/sign-in?to={quote(_asked_page(request), safe='')}", 303)
            except EdenError as error:
                return error_page(request, status_of(error), error.what, error.hint)
            except RequestValidationError as error:
                return error_page(request, 422, "This address is not complete or not valid.", _first(error))
            except PyMongoError as error:
                log.warning("MongoDB does not answer", path=self.path, reason=type(error).__name__)
                return error_page(
                    request, 503, "The database does not answer.", f"Try again in {AGAIN_SECONDS} s."
                )

        return guarded


class PublicPage(_FromBrowsers):
    """A page that anybody may open."""


class AdmittedPage(_FromBrowsers, AdmittedRoute):
    """A page for callers that are let in as at the HTTP API."""


def _demand_own_page(request: Request) -> None:
    """Raise Turned for a request that another site's page makes; forms must say that they are of ours.

    A link leads here from anywhere, as far as admission lets it; what a page loads into itself does not.
    """
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    own = origin is not None and is_own_origin(origin, request.headers.get("host", ""))
    if request.method in SAFE_METHODS:
        loaded = site in OTHER_SITES and request.headers.get("sec-fetch-dest") != "document"
        refused = (origin is not None and not own) or loaded
    else:
        refused = not own or site not in (None, "same-origin")
    if refused:
        raise Turned(
            "this request does not come from a page of the inspector", "Open the page, and use its form."
        )


def _show_key(request: Request) -> None:
    """Give the cookie's key as a header, which admission and event streams read; a header of its own comes first."""
    headers = Headers(scope=request.scope)
    key = request.cookies.get(COOKIE)
    if key is not None and "x-eden-key" not in headers and "authorization" not in headers:
        request.scope["headers"] = [*request.scope["headers"], (b"x-eden-key", key.encode("latin-1"))]


def _leave_out_blanks(request: Request) -> None:
    """Treat a field of a form that was left blank as not given."""
    given = parse_qsl(request.scope["query_string"].decode("latin-1"))
    request.scope["query_string"] = urlencode(given).encode()


def _asked_page(request: Request) -> str:
    query = request.url.query
    return request.url.path + (f"?{query}" if query else "")


def own_page(path: str) -> str:
    """Return the path if it is one of the inspector's; else its first page."""
    inside = path == "/ui" or path.startswith(("/ui/", "/ui?"))
    return path if inside and "\\" not in path and path.isprintable() else "/ui"


async def form_of(request: Request, kind: type[T]) -> T:
    """Return the form in a request's body; Invalid if it is none of this kind."""
    fields = parse_qsl((await request.body()).decode(errors="replace"), keep_blank_values=True)
    if len(dict(fields)) != len(fields):
        raise Invalid("a field is given twice")
    try:
        return kind.model_validate({name: value for name, value in fields if value != ""})
    except ValueError as error:
        raise Invalid("the form is not complete or not valid", _first(error)) from None


def _first(error: Any) -> str:
    """Return the first fault of a validation, without the value that was given."""
    fault = error.errors()[0]
    return f"{fault['loc'][-1] if fault['loc'] else 'request'}: {fault['msg']}"
