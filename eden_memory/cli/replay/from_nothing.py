"""`eden rebuild --from-nothing`: MongoDB has lost our collections; what the topics hold is restored."""

from rich.console import Console

from eden_memory.assembly.tailer import inbox_name, source_name
from eden_memory.cli.replay.progress import Shown
from eden_memory.replay.installation import installation
from eden_memory.replay.restore.from_nothing import FromNothing
from eden_memory.replay.restore.tailer_position_store import follow_from_now
from eden_memory.settings import Settings

LOST = (
    "Not in the topics, and so lost: API keys, streams (`eden stream`), budgets, pauses, how often facts were found, "
    "what was asked in the inbox and not carried yet, answers of models (what was in flight is asked again)."
)


async def from_nothing(settings: Settings, console: Console) -> None:
    """Restore, and say what was; twice does no harm."""

    def say(line: str) -> None:
        console.print(line, markup=False)

    async with installation(settings) as at:
        with Shown(console) as shown:
            restored = await FromNothing(at, say, shown).run()
        if not restored:
            say("everything was restored before: go on with `eden run`")
            return
        inbox = inbox_name(at.settings)
        if await follow_from_now(at.database, at.settings, source_name(at.settings), inbox):
            say(
                "the application's messages are not there: the tailer follows what is written from now on, and "
                "takes nothing that is missing for deleted"
            )
        say(LOST)
        say("restored: go on with `eden run`")
