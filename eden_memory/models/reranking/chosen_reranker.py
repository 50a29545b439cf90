"""The reranker that the settings name, if any."""

import os
from pathlib import Path

from pydantic import SecretStr

from eden_memory.models.reranking.http_reranker import HttpReranker
from eden_memory.models.reranking.onnx_reranker import OnnxReranker
from eden_memory.settings import SearchSettings


def reranker_of(settings: SearchSettings) -> HttpReranker | OnnxReranker | None:
    """EdenError if the folder that is named holds no model."""
    if settings.reranker is None:
        return None
    if settings.reranker.startswith(("http://", "https://")):
        key = os.environ.get(settings.rerank_key_env)
        return HttpReranker(settings.reranker, settings.rerank_model, SecretStr(key) if key else None)
    return OnnxReranker(Path(settings.reranker).expanduser())
