"""Prompt tokens at full price and from the provider's cache, by provider, with memory that is new and that has grown.

`python -m tests.bench.tokens [--windows N] [--of MODEL …] [--calls two|one …]`. Private servers; the model server
speaks each provider's format and caches prompts as that provider documents it. 4 users talk with one agent in 10
windows each, whose memory they share. "Grown": each consolidation writes a text of all words allowed, and each
window says something of the agent.
"""

import argparse
import asyncio
import os
import tempfile
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

from tests.bench.formation_load import conversations
from tests.bench.formation_run import WINDOW, Run, of_known_size, run
from tests.bench.report import Report, Row
from tests.model_server.script import LIMIT, Asked, Said, default_script
from tests.model_server.serving import ModelServerProcess, model_server_process
from tests.servers import TestServers, running_servers

USERS, WINDOWS_EACH = 4, 10
MODELS: Mapping[str, tuple[str, str]] = {
    "OpenAI": ("openai", "gpt-5-mini"),
    "Gemini 2.5": ("google", "gemini-2.5-flash"),
    "Gemini 3": ("google", "gemini-3-flash-preview"),
}
GOAL = 110_000.0
STAGES = ("fact-extraction", "fact-dedup", "reflection-extraction", "consolidation")


def grown_script(asked: Asked) -> Said:
    """Texts of all words allowed, and a reflection of the agent besides the usual three."""
    answer = default_script(asked)
    if not isinstance(answer, dict):
        return answer
    if asked.kind == "consolidation":
        words = min(int(found.replace(",", "")) for found in LIMIT.findall(asked.system))
        return {"text": " ".join(f"word{number % 97}" for number in range(words))}
    if asked.kind in ("reflections", "memory") and "agent" in asked.labels:
        stated = {"text": "The project follows its plan.", "scope": "agent", "messages": [1]}
        return {**answer, "reflections": [*answer["reflections"], stated]}
    return answer


def settings(provider: str, model: str, models: ModelServerProcess) -> dict[str, str]:
    """Settings of a provider's chats; vectors come from OpenAI's side."""
    named = {f"EDEN_MODELS_{use}": model for use in ("FAST", "FREE", "PAID")}
    if provider == "google":
        named |= {"GEMINI_API_KEY": "benchmark", "GOOGLE_GEMINI_BASE_URL": models.google_url}
    return {**of_known_size(models), "EDEN_LLM": provider, **named}


def describe(report: Report, name: str, done: Run) -> None:
    """Add tokens in all, from the cache, and by stage."""
    thousand = done.messages / 1_000
    chats = [call for call in done.formed.calls if call.operation == "chat"]
    prompt = sum(call.input_tokens for call in chats) / thousand
    cached = sum(call.cached_tokens for call in chats) / thousand
    known = [call.cost_usd for call in chats if call.cost_usd is not None]
    found = {
        "prompt_tokens_per_1000": prompt,
        "calls_per_1000": len(chats) / thousand,
        "cached_per_1000": cached,
        "full_price_per_1000": prompt - cached,
        "full_price_per_fact": (prompt - cached) * thousand / max(len(done.formed.markers), 1),
        "usd_per_1000": float(sum(known)) / thousand,
        "markers_lost": float(done.formed.expected - len(done.formed.markers)),
    }
    report.results |= {f"{name}: {key}": value for key, value in found.items()}
    report.rows += [
        Row(f"{name}: full-price tokens per 1,000", found["full_price_per_1000"], "tokens", GOAL, "aim"),
        Row("all prompt tokens", prompt, "tokens"),
        Row("calls per 1,000 messages", found["calls_per_1000"], "calls", 50.0, "aim of one call"),
        Row("full-price tokens per fact that is remembered", found["full_price_per_fact"], "tokens"),
        Row("cost per 1,000 messages", found["usd_per_1000"], "USD"),
    ]
    for stage in STAGES:
        own = [call for call in chats if call.stage == stage]
        shares = (
            sum(call.cached_tokens for call in own) / thousand,
            sum(call.input_tokens for call in own) / thousand,
        )
        report.rows.append(Row(f"cached of {stage}", shares[0], "tokens", shares[1], "its prompt tokens"))


async def formed(
    servers: TestServers, models: ModelServerProcess, provider: str, model: str, windows: int, calls: str
) -> Run:
    """Form all conversations by a provider's model, with so many calls for a window's facts and reflections."""
    load = list(conversations(USERS, windows * WINDOW))
    chosen = settings(provider, model, models) | {"EDEN_FORMATION_CALLS": calls}
    return await run(servers, models, load, None, chosen)


async def measure(windows: int, names: Sequence[str], calls: Sequence[str]) -> Report:
    """Run these models with both memories, and with two calls or one for each window."""
    report = Report("tokens", f"prompt tokens of {USERS * windows * WINDOW:,} messages")
    scripts = {"new memory": None, "grown memory": "tests.bench.tokens:grown_script"}
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers(os.environ, Path(folder), Path(".eden/jars")) as servers,
    ):
        for memory, script in scripts.items():
            with model_server_process(script, base_seconds=0.2) as models:
                for name, of in product(names, calls):
                    done = await formed(servers, models, *MODELS[name], windows, of)
                    describe(report, f"{name}, {memory}{', one call' if of == 'one' else ''}", done)
    return report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=WINDOWS_EACH, help="of each user")
    parser.add_argument("--of", action="append", choices=MODELS, help="of these models alone")
    parser.add_argument(
        "--calls", action="append", choices=["two", "one"], help="only so many for each window"
    )
    given = parser.parse_args()
    asyncio.run(measure(given.windows, given.of or list(MODELS), given.calls or ["two", "one"])).show()


if __name__ == "__main__":
    main()
