"""What the first call of a model would have to load is loaded before a window waits for it."""

import subprocess
import sys

from eden_memory.formation import prompts

LOADED = """
import sys
from eden_memory.models import call_accounts
assert "genai_prices.data" not in sys.modules, "loaded at import"
call_accounts.prepare()
before = set(sys.modules)
assert "genai_prices.data" in before
call_accounts.Prices().cost("openai", "gpt-5-mini", call_accounts.Tokens(input=10, output=10))
assert set(sys.modules) == before
"""


def test_all_templates_are_compiled_beforehand() -> None:
    prompts._template.cache_clear()  # pyright: ignore[reportPrivateUsage]
    prompts.prepare()
    compiled = prompts._template.cache_info()  # pyright: ignore[reportPrivateUsage]
    assert compiled.currsize == len(prompts.VERSIONS) * len(prompts.PARTS)
    prompts.prepare()
    assert prompts._template.cache_info().misses == compiled.misses  # pyright: ignore[reportPrivateUsage]


def test_price_tables_are_loaded_beforehand() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
