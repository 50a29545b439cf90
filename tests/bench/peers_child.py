"""One other memory in a process of its own, run by the Python that has it installed; knows nothing of this project.

`python peers_child.py mem0|graphiti FOLDER`: a JSON object a line in, one out. Configuration is the default of each,
but for the address of the model (`OPENAI_BASE_URL`), the folder of its data, and telemetry, which is off.
"""

# pyright: basic, reportMissingImports=false
import asyncio
import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path


class Mem0:
    """mem0: messages of a turn by `add`, memories of a user by `get_all` and `search`."""

    def __init__(self, folder):
        os.environ |= {"MEM0_DIR": str(folder), "MEM0_TELEMETRY": "False"}
        from mem0 import Memory

        store = {"provider": "qdrant", "config": {"path": str(folder / "qdrant")}}
        self._memory = Memory.from_config({"vector_store": store})

    async def add(self, user, messages):
        self._memory.add(messages, user_id=user)

    async def all(self, user):
        found = self._memory.get_all(filters={"user_id": user}, top_k=1_000)
        return [one["memory"] for one in found["results"]]

    async def find(self, user, query):
        found = self._memory.search(query, filters={"user_id": user})
        return [one["memory"] for one in found["results"]]


class Graphiti:
    """Graphiti on Kuzu: a turn is an episode of the user's group, facts are the edges of that group.

    Its driver for Kuzu lacks a name and makes no indices (its issue 1258): both are given here as that issue says.
    """

    def __init__(self, folder):
        os.environ["GRAPHITI_TELEMETRY_ENABLED"] = "false"
        from graphiti_core import Graphiti
        from graphiti_core.driver.kuzu_driver import KuzuDriver

        self._driver = KuzuDriver(db=str(folder / "graph.kuzu"))
        self._driver._database = ""
        self._new = not (folder / "made").exists()
        (folder / "made").touch()
        self._graphiti = Graphiti(graph_driver=self._driver)

    async def begin(self):
        from graphiti_core.graph_queries import get_fulltext_indices

        await self._graphiti.build_indices_and_constraints()
        for index in get_fulltext_indices(self._driver.provider) if self._new else ():
            await self._driver.execute_query(index)

    async def add(self, user, messages):
        from graphiti_core.nodes import EpisodeType

        speakers = {"user": user.capitalize(), "assistant": "Juniper"}
        await self._graphiti.add_episode(
            name="chat",
            episode_body="\n".join(f"{speakers[one['role']]}: {one['content']}" for one in messages),
            source=EpisodeType.message,
            source_description="chat",
            reference_time=datetime.now(UTC),
            group_id=user,
        )

    async def all(self, user):
        from graphiti_core.edges import EntityEdge
        from graphiti_core.errors import GroupsEdgesNotFoundError

        try:
            found = await EntityEdge.get_by_group_ids(self._driver, [user])
        except GroupsEdgesNotFoundError:
            return []
        return [one.fact for one in found]

    async def find(self, user, query):
        return [one.fact for one in await self._graphiti.search(query, group_ids=[user])]


async def serve(memory, answers):
    """Until the input ends: do what a line says, and tell how long it took."""
    if hasattr(memory, "begin"):
        await memory.begin()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        call = json.loads(line)
        began = time.perf_counter()
        try:
            said = {"result": await getattr(memory, call.pop("call"))(**call)}
        except Exception as error:  # noqa: BLE001 - whatever an application would see
            said = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps({**said, "seconds": time.perf_counter() - began}), file=answers, flush=True)


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    os.environ |= {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": os.environ["PEERS_MODEL_URL"]}
    kinds = {"mem0": Mem0, "graphiti": Graphiti}
    folder = Path(sys.argv[2]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(serve(kinds[sys.argv[1]](folder), answers))
