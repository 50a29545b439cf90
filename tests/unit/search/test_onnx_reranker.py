"""A model from a folder is run over pairs; the installed embedding model stands in for a cross-encoder."""

from pathlib import Path

import pytest

from eden_memory.errors import EdenError
from eden_memory.models import local_embedder
from eden_memory.models.rerankers import OnnxReranker

pytest.importorskip("onnxruntime")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, installed in (
        ("model.onnx", local_embedder.MODEL_FILE),
        ("tokenizer.json", local_embedder.TOKENIZER_FILE),
    ):
        file = local_embedder._file(*installed)  # pyright: ignore[reportPrivateUsage]
        (tmp_path / name).symlink_to(file)
    return tmp_path


async def test_each_text_is_read_with_the_query_and_gets_a_relevance_in_order(folder: Path) -> None:
    reranker = OnnxReranker(folder)
    texts = [f"text number {number}" for number in range(18)]
    try:
        found = await reranker.relevances("which one?", texts)
        again = await reranker.relevances("which one?", texts[:1])
        other = await reranker.relevances("something else entirely", texts[:1])
    finally:
        await reranker.close()
    assert len(found) == len(texts)
    assert all(0 <= one <= 1 for one in found)
    assert found[0] == pytest.approx(again[0], abs=0.05)  # int8 weights: a batch's scale moves with it
    assert other != again
    assert len(set(found)) > 1


def test_a_folder_without_a_model_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(EdenError, match=r"no model\.onnx and no tokenizer\.json"):
        OnnxReranker(tmp_path)
