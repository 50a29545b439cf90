"""Eden Memory as a client of OmniMemEval (github.com/MemTensor/OmniMemEval): add, search and delete over HTTP.

    eden run & eden serve &                            # memory forms in one, the API answers in the other
    cp eden_client.py OmniMemEval/scripts/client_factory/
    # in registry.py, _LIB_CLIENT_REGISTRY:            "eden": ("eden_client", "EdenClient"),
    # in locomo_search.py, _search_dispatch:           "eden": generic_text_search,

`--lib eden` then chooses it. Environment: EDEN_BASE_URL (default http://127.0.0.1:8787), EDEN_API_KEY
(a key with the rights read, write and admin; none is needed on the same machine), EDEN_AGENT, EDEN_FORM_SECONDS (how
long to wait for one call's memory).

Forgetting is for ever: messages of a deleted user that are dated before the deletion do not come back. Begin another
run with another `--version`, which the harness puts into the ids of users.
"""

# pyright: basic, reportMissingImports=false
import time
from typing import Any
from urllib.parse import quote

from .base_client import BaseApiClient, env_int, env_str, iter_batches

AT_ONCE = 100
CHARACTERS = 150_000
"""Of messages in one request: it may have a megabyte."""
UNDER_WAY = {"not read", "not_recorded", "waiting", "waits_for_document", "over_budget", "being_formed"}
ROLES = {"user", "assistant", "tool", "system"}


class EdenClient(BaseApiClient):
    """Each user of the harness is a user of one agent; messages that are added are formed at once."""

    def __init__(self) -> None:
        key = env_str("EDEN_API_KEY")
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        super().__init__(base_url=env_str("EDEN_BASE_URL", "http://127.0.0.1:8787"), headers=headers)
        self._agent = f"/v1/agents/{_typed(env_str('EDEN_AGENT', 'omnimemeval'), in_path=True)}"
        self._seconds = env_int("EDEN_FORM_SECONDS", 600)

    def add(self, messages: list[dict[str, Any]], user_id: str, **_: Any) -> None:
        """Write messages, and return once memory of them is formed; TimeoutError."""
        turns = [_turn(message) for message in messages if message.get("content", "").strip()]
        user, last = {"user": _typed(user_id)}, None
        for batch in iter_batches(turns, AT_ONCE, max_chars=CHARACTERS):
            names = self._asked("POST", f"{self._agent}/memories", user, {"messages": batch})["request_ids"]
            said = [
                (name, turn["content"])
                for name, turn in zip(names, batch, strict=True)
                if turn["role"] == "user"
            ]
            last = said[-1] if said else last
        if last is not None:
            self._wait_for(*last, user)

    def search(self, query: str, user_id: str, top_k: int) -> str:
        """Return facts and reflections, one a line, best first, each with the time at which it was said."""
        asked = {"queries": [query[:2_000]], "top_k": top_k, "kinds": ["facts", "reflections"]}
        found = self._asked("POST", f"{self._agent}/search", {"user": _typed(user_id)}, asked)
        return "\n".join(f"[{fact['said_at'][:16]}] {fact['content']}" for fact in found["facts"])

    def delete(self, user_id: str) -> None:
        """Forget a user, with everything that rests on their messages; nothing is done for one who is not known."""
        user = f"/v1/users/{_typed(user_id, in_path=True)}"
        if self._asked("GET", f"{user}/export", {})["items"]:
            self._asked("DELETE", user, {})

    def _wait_for(self, name: str, text: str, user: dict[str, str]) -> None:
        """Return once a message has become memory, or nothing: those before it were formed before it."""
        asked, until, outcome = {**user, "text": text[:1_000]}, time.monotonic() + self._seconds, "not read"
        while time.monotonic() < until:
            found = self._asked("GET", f"{self._agent}/why", asked)
            outcome = next((item["outcome"] for item in found if item["id"] == name), "not read")
            if outcome not in UNDER_WAY:
                return
            time.sleep(0.5)
        raise TimeoutError(
            f"memory was not formed within {self._seconds} seconds (EDEN_FORM_SECONDS): {outcome}"
        )

    def _asked(
        self, method: str, path: str, where: dict[str, str], body: dict[str, Any] | None = None
    ) -> Any:
        """Return the answer as JSON; faults of the network and of a busy server are tried again."""

        def ask() -> Any:
            call = {"POST": self._post, "GET": self._get, "DELETE": self._delete}[method]
            response = call(path, params=where, **({} if body is None else {"json": body}))
            response.raise_for_status()
            return response.json()

        return self._retry(ask)


def _turn(message: dict[str, Any]) -> dict[str, Any]:
    role = message.get("role", "user")
    turn = {"role": role if role in ROLES else "other", "content": message["content"]}
    return turn | ({"created_at": message["chat_time"]} if message.get("chat_time") else {})


def _typed(name: str, *, in_path: bool = False) -> str:
    """Return a text id that nothing else can be taken for; a path encodes it once more."""
    typed = "s." + quote(name, safe="")
    return quote(typed, safe="") if in_path else typed
