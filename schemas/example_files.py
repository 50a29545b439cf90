"""The example payloads that are kept for every version of every event: `examples/<Type>/v<N>/*.json`."""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "examples"


def examples_of(name: str, version: int) -> dict[str, Any]:
    """Title (`ended with nothing pending`) → payload, in the order of their file names."""
    files = sorted((FOLDER / name / f"v{version}").glob("*.json"))
    return {path.stem.replace("_", " "): json.loads(path.read_text()) for path in files}
