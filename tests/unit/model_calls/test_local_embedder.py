"""The model on this machine: the same vector for a text, whatever is embedded beside it."""

import asyncio

import pytest

from eden_memory.errors import EdenError
from eden_memory.models import local_embedder
from eden_memory.models.local_embedder import DIMENSIONS, MODEL, MULTILINGUAL, LocalEmbedder
from eden_memory.schemas.fields import unpack_vector

TEXTS = [
    "Maria moved to Lisbon in March 2024.",
    "In March of 2024 Maria relocated to Lisbon.",
    "The train to Porto leaves at nine.",
    "word " * 700,
    "ß漢字 🙂",
    "x",
]


def cosine(one: bytes, other: bytes) -> float:
    return sum(a * b for a, b in zip(unpack_vector(one), unpack_vector(other), strict=True))


@pytest.fixture(scope="module")
def embedder() -> LocalEmbedder:
    return LocalEmbedder()


@pytest.mark.slow
async def test_a_vector_is_the_same_bit_by_bit_alone_and_in_any_batch(embedder: LocalEmbedder) -> None:
    alone = [(await embedder.embed([text]))[0].vector for text in TEXTS]
    together = [one.vector for one in await embedder.embed(TEXTS)]
    backwards = [one.vector for one in await embedder.embed(TEXTS[::-1])][::-1]
    at_once = await asyncio.gather(*(embedder.embed([text]) for text in TEXTS * 4))
    single = LocalEmbedder(threads=1)
    on_one_thread = [one.vector for one in await single.embed(TEXTS)]
    assert alone == together == backwards == on_one_thread
    assert [one[0].vector for one in at_once] == alone * 4


async def test_texts_of_many_requests_run_together_and_keep_their_vectors(embedder: LocalEmbedder) -> None:
    texts = [
        f"{name} moved to {place}." for name in ("Maria", "Ada", "Rui") for place in ("Lyon", "Lisbon", "Ulm")
    ]
    alone = {text: (await embedder.embed([text]))[0].vector for text in texts}
    await embedder.embed(["x"])
    requests = [[texts[(at + step) % len(texts)] for step in range(1 + at % 5)] for at in range(60)]
    found = await asyncio.gather(*map(embedder.embed, requests))
    assert [[one.vector for one in vectors] for vectors in found] == [
        [alone[text] for text in request] for request in requests
    ]


async def test_a_request_that_is_cancelled_takes_no_other_with_it(embedder: LocalEmbedder) -> None:
    alone = (await embedder.embed(TEXTS))[0].vector
    requests = [asyncio.create_task(embedder.embed(TEXTS)) for _ in range(8)]
    await asyncio.sleep(0)
    for request in requests[::2]:
        request.cancel()
    ended = await asyncio.gather(*requests, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in ended[::2])
    assert [one[0].vector for one in ended[1::2] if not isinstance(one, BaseException)] == [alone] * 4


async def test_an_error_of_the_model_reaches_every_request_and_the_next_one_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(texts: object) -> list[bytes]:
        raise ZeroDivisionError(texts)

    embedder = LocalEmbedder(threads=1)
    await embedder.embed(["x"])
    engine = embedder._loaded  # pyright: ignore[reportPrivateUsage]
    with monkeypatch.context() as broken:
        broken.setattr(engine, "vectors", failing)
        ended = await asyncio.gather(*(embedder.embed(TEXTS) for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in ended] == [ZeroDivisionError] * 3
    assert len(await embedder.embed(TEXTS)) == len(TEXTS)
    await embedder.close()


async def test_what_waits_when_it_is_closed_is_cancelled() -> None:
    embedder = LocalEmbedder(threads=1)
    await embedder.embed(["x"])
    waiting = [asyncio.create_task(embedder.embed([f"{number} " * 200])) for number in range(40)]
    await asyncio.sleep(0.05)
    await embedder.close()
    ended = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 30)
    assert any(isinstance(one, asyncio.CancelledError) for one in ended)


async def test_vectors_have_length_one_and_the_declared_dimensions(embedder: LocalEmbedder) -> None:
    for one in await embedder.embed(TEXTS):
        assert (one.model, one.call_id, len(one.vector)) == (MODEL, None, DIMENSIONS * 4)
        assert cosine(one.vector, one.vector) == pytest.approx(1.0, abs=1e-5)


async def test_what_means_the_same_is_nearer_than_what_does_not(embedder: LocalEmbedder) -> None:
    first, same, other = [one.vector for one in await embedder.embed(TEXTS[:3])]
    assert (1 + cosine(first, same)) / 2 > 0.9
    assert (1 + cosine(first, other)) / 2 < 0.7


async def test_the_multilingual_model_knows_what_means_the_same_in_another_language() -> None:
    embedder = LocalEmbedder(model=MULTILINGUAL)
    made = await embedder.embed([TEXTS[0], "玛丽亚于2024年3月搬到里斯本。", "مرحبا\0", TEXTS[2]])
    english, chinese, _, other = [one.vector for one in made]
    assert {(one.model, len(one.vector)) for one in made} == {(MULTILINGUAL, DIMENSIONS * 4)}
    assert cosine(english, chinese) > cosine(english, other) + 0.05
    assert (await embedder.embed([TEXTS[0]]))[0].vector == english
    await embedder.close()


async def test_what_is_beyond_the_limit_is_not_read(embedder: LocalEmbedder) -> None:
    long = "word " * 300
    cut, longer = [one.vector for one in await embedder.embed([long, long + "Lisbon"])]
    assert cut == longer


async def test_a_missing_package_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_embedder, "MODEL_FILE", ("no-such-package", "model.onnx"))
    with pytest.raises(EdenError, match="no-such-package") as raised:
        await LocalEmbedder().embed(["x"])
    assert "local-models" in raised.value.hint


async def test_another_model_under_the_same_name_is_refused(
    monkeypatch: pytest.MonkeyPatch, embedder: LocalEmbedder
) -> None:
    monkeypatch.setattr(local_embedder, "MODEL_FILE", local_embedder.TOKENIZER_FILE)
    with pytest.raises(EdenError, match="is not the model"):
        await LocalEmbedder().embed(["x"])
