"""Few functions of ours lie between an entry and a driver's call; docs/architecture.md shows them."""

from pathlib import Path

import pytest

from eden_memory.settings import Settings
from tests.bench.walks import MOST, walks

pytestmark = pytest.mark.servers


@pytest.mark.slow
async def test_few_functions_lie_between_an_entry_and_a_drivers_call(settings: Settings) -> None:
    found = await walks(settings)
    assert {name for name, walk in found.items() if not walk} == set()
    page = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text()
    shown = {function.split()[1].removesuffix(".__call__") for walk in found.values() for function in walk}
    assert [name for name in sorted(shown) if f"`{name.partition('.get_route')[0]}" not in page] == []
    assert {name: walk for name, walk in found.items() if len(walk) > MOST} == {}
