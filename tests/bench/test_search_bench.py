"""The search benchmark in a short form: ratios and shares, never absolute times."""

from uuid import uuid4

import pytest

from tests.bench.search import (
    RECALL_TARGET,
    Sizes,
    _settings,  # pyright: ignore[reportPrivateUsage]
    main,
)
from tests.bench.search_first import MEMORY_TARGET
from tests.servers import TestServers


@pytest.mark.servers
@pytest.mark.slow
async def test_searching_is_exact_and_ranks_words_better_than_the_text_index(servers: TestServers) -> None:
    settings = _settings(servers.mongodb_uri, f"bench{uuid4().hex[:8]}")
    report = await main(settings, Sizes((3_100,), 4, 64, 1_536, 30, 3, 1))
    assert report.results["bounded_evicted"] > 0
    assert report.results["bounded_largest_over_bound"] <= 1
    assert report.results["bounded_kept_newest_over_kept"] == 1
    for dimensions in (64, 1_536):
        assert report.results[f"3100_{dimensions}_recall"] >= RECALL_TARGET
    assert (
        report.results["3100_1536_mb_per_100000"] <= 1.03 * MEMORY_TARGET[1_536]
    )  # an index of words has room to spare
    for key in ("3100", "3100_spread"):
        assert report.results[f"{key}_recall"] >= RECALL_TARGET
        assert report.results[f"{key}_queries"] == 0
        assert report.ratios[f"{key}_over_text_p50"] <= 25
        assert report.results[f"{key}_typo_mrr"] >= report.bounds[f"{key}_typo_text_mrr"] + 0.3
        assert report.results[f"{key}_other_form_mrr"] >= report.bounds[f"{key}_other_form_text_mrr"]
