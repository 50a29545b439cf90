"""docs/transcripts/rebuild-from-nothing.md, played anew: `python -m tests.transcripts.rebuild` writes it."""

from tests.transcripts.playing import Shell, Step, blocks
from tests.transcripts.stage import PAGES, write

PAGE = PAGES / "rebuild-from-nothing.md"
SESSION, USER = "s-priya-books", "priya"
CONTEXT = f"eden context {SESSION} --user {USER} | sed 's/ ([^()]* ago)$//; s/ (just now)$//'"
VERIFY = "eden rebuild check --verify"
DROP = """\
import os
from pymongo import MongoClient

database = MongoClient(os.environ["EDEN_MONGODB_URI"])[os.environ["EDEN_MONGODB_DATABASE"]]
for name in database.list_collection_names():
    if name.startswith("memory_"):
        database[name].drop()
print("left:", *sorted(database.list_collection_names()))
"""
CHAT = f"""\
import os
from datetime import UTC, datetime
from pymongo import MongoClient

database = MongoClient(os.environ["EDEN_MONGODB_URI"])[os.environ["EDEN_MONGODB_DATABASE"]]
said = [
    ("user", "Hello again. The VAT return is done, and it was only two kronor off."),
    ("assistant", "That is close."),
    ("user", "From 1 June 2026 the yard's accountant is Karin Holm at Ekonomihuset in Kungälv."),
    ("assistant", "Noted, I will send her what I have."),
]
for number, (role, content) in enumerate(said, 1):
    user = "{USER}" if role == "user" else None
    row = {{"_id": f"late{{number}}", "session_id": "{SESSION}", "role": role, "user_id": user}}
    database["messages"].insert_one({{**row, "content": content, "created_at": datetime.now(UTC)}})
print(database["messages"].count_documents({{}}), "messages")
"""
WINDOWS = """\
import json, sys

windows = [json.loads(line)["data"] for line in sys.stdin]
named = [one["message_id"] for window in windows for one in window["messages"]]
print(len(windows), "windows with", len(named), "messages,", len(set(named)), "different ones")
"""
COUNTED = "eden tap memory.formations --json --until-end | python windows.py"
FILES = {"drop.py": DROP, "chat.py": CHAT, "windows.py": WINDOWS}
LATE = "Karin Holm"


async def played(shell: Shell) -> list[Step]:
    """All steps, in order."""
    for name, text in FILES.items():
        (shell.folder / name).write_text(text)
    async with shell.system():
        await shell.run(f"{CONTEXT} > before.xml; cat before.xml")
        await shell.run(VERIFY)
        await shell.run("cat windows.py")
        await shell.run(COUNTED)
    await shell.run("cat drop.py")
    await shell.run("python drop.py")
    await shell.run(CONTEXT)
    await shell.run("cat chat.py")
    await shell.run("python chat.py")
    await shell.run("eden rebuild --from-nothing")
    await shell.run(f"{CONTEXT} | diff before.xml - && echo as before")
    await shell.run(VERIFY)
    await shell.run(COUNTED)
    async with shell.system():
        await shell.run(f"eden session form {SESSION}")
        await shell.until(CONTEXT, LATE)
        await shell.run(f"{CONTEXT} | diff before.xml -")
        await shell.run(COUNTED)
        await shell.run(VERIFY)
    return shell.steps


def page(steps: list[Step]) -> str:
    """The document."""
    before, checked, counting, counted, cat, dropped, during, chat, written, *after = steps
    restored, same, checked_again, counted_again, asked, differs, counted_last, checked_last = after
    return blocks(
        [
            "# Every memory collection deleted, and restored",
            _about(),
            "## Before",
            "What the agent reads in a session of Priya, who does the yard's books (without the facts' ages, which"
            " `sed` takes off); whether the topics hold what live memory holds; which messages were formed.",
            before,
            checked,
            counting,
            counted,
            "## Lost",
            "`eden run` is stopped, and every collection of ours is dropped, memory and everything else, the"
            " namespace `check` among them. The application's own stay.",
            cat,
            dropped,
            during,
            "It goes on writing meanwhile:",
            chat,
            written,
            "## Restored",
            "From the topics alone: no model is asked. The hashes are those of the whole content of a collection"
            " ([what is compared](../replay.md#what-is-compared)): the same before and after.",
            restored,
            same,
            checked_again,
            counted_again,
            "## Formation goes on",
            "`eden run` is started again. What was written meanwhile makes one window more; nothing was formed twice,"
            " nothing left out.",
            asked,
            differs,
            counted_last,
            checked_last,
        ]
    )


def _about() -> str:
    return (
        "A real run: the 281 messages of `examples/demo.jsonl` in seven sessions (two are deleted later),"
        " formed by `eden run` on one mongod and one Kafka broker. The model is the tests' own server behind OpenAI's"
        " SDK, which answers by rules. `make transcripts` makes this page; a test plays it on two of the sessions"
        " ([test_rebuild_transcript.py](../../tests/transcripts/test_rebuild_transcript.py))."
        " More: [replay](../replay.md#from-nothing)."
    )


async def play(shell: Shell) -> str:
    """The page, played."""
    return page(await played(shell))


if __name__ == "__main__":
    write(PAGE, play)
