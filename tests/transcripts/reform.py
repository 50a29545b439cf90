"""docs/transcripts/reform-with-another-prompt.md, played anew: `python -m tests.transcripts.reform` writes it."""

import json

from tests.transcripts.boatyard_model import ISO_DATES, NO_MONEY
from tests.transcripts.playing import Shell, Step, blocks, shortened
from tests.transcripts.stage import PAGES, write

PAGE = PAGES / "reform-with-another-prompt.md"
SESSION, USER = "s-mara-order", "mara"
CONTEXT = f"eden context {SESSION} --user {USER} | sed 's/ ([^()]* ago)$//; s/ (just now)$//'"
FACTS = "sed -n '/<Facts>/,$p' before.xml | head -n 6"
LINES_OF_A_REPORT = 60


def streams() -> str:
    """The changed prompt: guidance for facts of users and of the agent."""
    scopes = {"user": f"{NO_MONEY} {ISO_DATES}", "agent": f"{NO_MONEY} {ISO_DATES}"}
    rows = [
        {
            "_id": f"s.juniper/{scope}",
            "agent_id": "s.juniper",
            "scope": scope,
            "extraction_guidance": said,
        }
        for scope, said in scopes.items()
    ]
    return json.dumps(rows, indent=2) + "\n"


async def played(shell: Shell) -> list[Step]:
    """All steps, in order."""
    (shell.folder / "streams.json").write_text(streams())
    await shell.run("cat streams.json")
    await shell.run(f"{CONTEXT} > before.xml; {FACTS}")
    await shell.run("eden reform trial --streams streams.json --cap 1", "y")
    await shell.run("eden reform report trial --most 3")
    await shell.run("eden reform trial --switch", "y")
    await shell.run(f"{CONTEXT} | diff before.xml -")
    await shell.run("eden namespace list")
    await shell.run("eden namespace rollback")
    await shell.run(f"{CONTEXT} | diff before.xml - && echo as before")
    await shell.run("eden namespace drop trial", "y")
    await shell.run("eden namespace list")
    return shell.steps


def page(steps: list[Step]) -> str:
    """The document."""
    cat, before, asked, report, switched, differs, listed, back, same, dropped, left = steps
    return blocks(
        [
            "# Formed anew with another prompt, read, switched to, rolled back",
            _about(),
            "The changed prompt: guidance for the scopes that have facts.",
            cat,
            "Facts that the agent reads in a session of Mara, who runs the yard (`sed` removes their ages):",
            before,
            "## Formed anew",
            "The command estimates the cost and asks for confirmation before it creates anything.",
            asked,
            "## The report",
            "By meaning, the scopes that differ most first.",
            shortened(report, LINES_OF_A_REPORT, "lines"),
            "## Switched to",
            "The command says which settings new chat would need to be formed in the same way.",
            switched,
            differs,
            listed,
            "## Rolled back, and dropped",
            back,
            same,
            dropped,
            left,
        ]
    )


def _about() -> str:
    return (
        "A real run: the 281 messages of `examples/demo.jsonl` in seven sessions, formed by `eden run`, which goes on"
        " all the while, on one mongod and one Kafka broker. The model is the tests' own server behind OpenAI's SDK:"
        " it answers by rules and heeds the two wishes below. Tokens are its own count, prices those of the models'"
        " names. As sessions are formed side by side, the order of reflections, and what finds its answer kept, is"
        " another in each run. `make transcripts` makes this page; a test plays it on three of the sessions"
        " ([test_reform_transcript.py](../../tests/transcripts/test_reform_transcript.py))."
        " More: [replay](../replay.md)."
    )


async def play(shell: Shell) -> str:
    """The page, played."""
    async with shell.system():
        return page(await played(shell))


if __name__ == "__main__":
    write(PAGE, play)
