"""Ids of a provider's models as they stand in a path: passed on as they came, and no way to any other path. Pure."""

import re
from urllib.parse import unquote_to_bytes

from eden_memory.errors import NotAnId

PATH = b"/v1/models/"
MOST = 512
_NOT_IN_IDS = re.compile(r"[\x00-\x20\x7f%?#\\]|(^|/)\.{0,2}(/|$)")
"""Blanks, controls, what begins another part of an address, a second encoding, segments that lead elsewhere."""


def model_path(raw: bytes) -> str:
    """The provider's path for the path of a request, still encoded; NotAnId for what is no model's id."""
    _, _, encoded = raw.partition(PATH)
    try:
        path, model = f"/models/{encoded.decode('ascii')}", unquote_to_bytes(encoded).decode()
    except UnicodeDecodeError:
        path = model = ""
    if len(encoded) > MOST or _NOT_IN_IDS.search(model):
        raise NotAnId("this is no id of a model", "Take one that GET /v1/models lists.")
    return path
