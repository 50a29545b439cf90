"""People's own changes in one memory, applied again in another: as commands to its fact-dedup."""

from collections.abc import Callable

from eden_memory.domain.replay.applied import Applied
from eden_memory.domain.replay.own import Side
from eden_memory.ports import Embedder
from eden_memory.runtime.stages.codec import TopicOf
from eden_memory.runtime.stages.tools import Publishing


async def apply_own_changes(
    source: Side,
    shadow: Side,
    embedder: Embedder,
    publisher: Publishing | None,
    topic_of: TopicOf,
    *,
    wanted: Callable[[str], bool] = lambda _: True,
    least: float | None = None,
) -> Applied:
    """Give the shadow's fact-dedup the commands that people gave in the source, each to what it matches.

    `publisher` None: only say what would be done. `topic_of` is the shadow's. `embedder` is that of the shadow (texts
    that it embedded before are kept, and cost nothing). `wanted` chooses scope keys. `least`: (1 + cosine) / 2 from
    which two texts mean the same; None: by the embedding model.

    To be called when the shadow's stages have nothing left to do. Commands have ids that follow from the change and
    what it is applied to, so it may be stopped and called again at any time: what the shadow holds already is among
    `already`. Commands are confirmed by the brokers when it returns, not yet carried out: wait for the lag of the
    shadow's fact-dedup and atlas-writer. No language model is asked, here or by the commands.
    """
    raise NotImplementedError
