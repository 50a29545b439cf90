"""Transports that PyMongo leaves to the garbage collector, which warns of them in whatever test runs then."""

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager

from pymongo.network_layer import PyMongoProtocol


@contextmanager
def ignored_transports() -> Generator[list[object]]:
    """Ignore what PyMongo leaves inside the block, and list it; everything else is reported as before.

    PyMongo 4.20 loses a new connection when its task is cancelled after the transport is there and before the
    pool has the connection (`Pool.connect`: it waits for two locks in between, outside of any `try`).
    """
    reported, left = sys.unraisablehook, list[object]()

    def hook(found: "sys.UnraisableHookArgs") -> None:
        transport = _unclosed(found)
        if isinstance(getattr(transport, "_protocol", None), PyMongoProtocol):
            left.append(repr(transport))
        else:
            reported(found)

    sys.unraisablehook = hook
    try:
        yield left
    finally:
        gc.collect()
        sys.unraisablehook = reported


def _unclosed(found: "sys.UnraisableHookArgs") -> object:
    """What a ResourceWarning that became an error is about: the object whose `__del__` raised it."""
    trace = found.exc_traceback
    while isinstance(found.exc_value, ResourceWarning) and trace is not None:
        if trace.tb_frame.f_code.co_name == "__del__":
            return trace.tb_frame.f_locals.get("self")
        trace = trace.tb_next
    return None
