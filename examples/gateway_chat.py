"""OpenAI's own client talks through the gateway: one conversation is remembered, the next one knows of it.

    EDEN_GATEWAY_UPSTREAM=https://api.openai.com/v1 eden serve      # beside `eden run`
    OPENAI_API_KEY=… python examples/gateway_chat.py [--base-url http://127.0.0.1:8787/v1] [--model gpt-5-mini]

The second conversation starts empty: what the model knows of the first, it knows from memory.
"""

import argparse
import asyncio
from collections.abc import Callable
from typing import Any

from openai import AsyncOpenAI

from eden_memory.api.service import Memory

Say = Callable[[str], None]
USER = "rui"
MONDAY = (
    "My daughter Ines was born on 12 May 2019.",
    "My sister Clara lives in Coimbra and works at the hospital there.",
    "Please always give prices in euros.",
)
TUESDAY = ("When was my daughter Ines born?", "And where does my sister Clara live?")


async def conversation(
    client: AsyncOpenAI, model: str, session: str, texts: tuple[str, ...], say: Say
) -> None:
    """One conversation, streamed; as every client does, it sends the history again with each turn."""
    history: list[Any] = []
    for text in texts:
        history.append({"role": "user", "content": text})
        stream: Any = await client.chat.completions.create(
            model=model,
            messages=history,
            user=USER,
            stream=True,
            extra_body={"memory_id": session, "memory_top_k": 1},
        )
        say(f"  {USER:6} {text}")
        said = ""
        async for chunk in stream:
            for hit in getattr(chunk, "memory_hits", None) or ():
                say(f"  {'hit':6} [{hit['scope']}] {hit['content']}")
            said += (chunk.choices[0].delta.content or "") if chunk.choices else ""
        say(f"  {'model':6} {said}")
        history.append({"role": "assistant", "content": said})


async def remembered(memory: Memory, session: str, seconds: float) -> None:
    """End a session, and wait until memory of it stands in a new one's context, and no longer its messages."""
    service = memory.agent()
    await service.on_session_end(session)
    async with asyncio.timeout(seconds):
        context = ""
        while "Clara" not in context or "<Recent>" in context:
            await asyncio.sleep(0.2)
            context = await service.get_memory_context("tuesday", USER)


async def main(client: AsyncOpenAI, model: str, memory: Memory, seconds: float, say: Say = print) -> None:
    """Two conversations, memory in between."""
    say("monday")
    await conversation(client, model, "monday", MONDAY, say)
    await remembered(memory, "monday", seconds)
    say("tuesday, a new conversation")
    await conversation(client, model, "tuesday", TUESDAY, say)


async def run(base_url: str, model: str) -> None:
    """Against a gateway that runs, and memory as the settings have it."""
    async with AsyncOpenAI(base_url=base_url) as client, Memory() as memory:
        await main(client, model, memory, 120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-url", default="http://127.0.0.1:8787/v1")
    parser.add_argument("--model", default="gpt-5-mini")
    given = parser.parse_args()
    asyncio.run(run(given.base_url, given.model))
