"""`/ui/sign-in`, `/ui/sign-out` and the assets: what a browser needs before a page about memory."""

from pathlib import Path as FilePath
from typing import Annotated, Literal
from urllib.parse import urlsplit

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse, RedirectResponse
from pydantic import BaseModel, ConfigDict, Field

from eden_memory.access.admission_store import Unknown
from eden_memory.api.http.doors import doors_of
from eden_memory.api.ui.inspector_route import COOKIE, AdmittedPage, PublicPage, form_of, own_page
from eden_memory.api.ui.pages import error_page, render

router = APIRouter(prefix="/ui", route_class=PublicPage)
ASSETS = FilePath(__file__).parent / "assets"
Asset = Literal["htmx.min.js", "hx-sse.min.js", "inspector.css", "leaf.svg"]
SECONDS = 3_600


class SignIn(BaseModel):
    """A key, and the page that was asked for."""

    model_config = ConfigDict(extra="forbid")

    key: Annotated[str, Field(max_length=200)] = ""
    to: Annotated[str, Field(max_length=8_000)] = "/ui"


@router.get("/assets/{name}")
async def asset(name: Asset) -> FileResponse:
    """Return a style sheet, script or picture; pages name them with the program's version."""
    return FileResponse(ASSETS / name, headers={"Cache-Control": f"public, max-age={SECONDS}"})


@router.get("/sign-in")
async def sign_in_page(request: Request, to: Annotated[str, Query(max_length=8_000)] = "/ui") -> Response:
    """Ask for a key."""
    return render(request, "sign_in.html", to=own_page(to), wrong="")


@router.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """Keep a valid key in a cookie of this session of the browser, and go on."""
    given = await form_of(request, SignIn)
    to, host = own_page(given.to), request.headers.get("host", "")
    try:
        shown = [
            (b"x-eden-key", given.key.strip().encode("latin-1", "replace")),
            (b"host", host.encode("latin-1")),
        ]
        await doors_of(request).admission.admit(shown)
    except Unknown as error:
        return render(request, "sign_in.html", 401, to=to, wrong=f"{error.what[:1].upper()}{error.what[1:]}.")
    response = RedirectResponse(to, 303)
    secure = urlsplit(request.headers.get("origin", "")).scheme == "https"
    response.set_cookie(
        COOKIE, given.key.strip(), path="/ui", secure=secure, httponly=True, samesite="strict"
    )
    return response


@router.post("/sign-out")
async def sign_out() -> Response:
    """Forget the key."""
    response = RedirectResponse("/ui/sign-in", 303)
    response.delete_cookie(COOKIE, path="/ui", httponly=True, samesite="strict")
    return response


def unknown_page() -> APIRouter:
    """Return the page for addresses under /ui that lead nowhere; to be included last."""
    last = APIRouter(prefix="/ui", route_class=AdmittedPage)

    @last.get("/{path:path}")
    async def nowhere(request: Request, path: str) -> Response:
        del path
        return error_page(request, 404, "There is no such page.")

    return last
