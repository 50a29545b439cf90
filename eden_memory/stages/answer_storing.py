"""What a handler has paid for is stored when its result is given, though it went on meanwhile."""

import asyncio
from collections.abc import Sequence

from eden_memory.stages.pending_answers import KEEPING, Keeping, KeptElsewhere
from eden_memory.stages.stage import Delivery, Handler, Result, Retry
from eden_memory.task_ending import end


def storing(handler: Handler) -> Handler:
    """The handler with its answers stored; where another's came first, it is tried again and finds that one."""

    async def run(deliveries: Sequence[Delivery]) -> Result:
        keeping = Keeping()
        token = KEEPING.set(keeping)
        try:
            result = await handler(deliveries)
            problems = await keeping.done()
        except asyncio.CancelledError:
            await end(keeping.writes)
            raise
        except Exception:
            await keeping.done()
            raise
        finally:
            KEEPING.reset(token)
        for one in problems:
            if not isinstance(one, KeptElsewhere):
                raise one
        return Retry(str(problems[0]), after=0.0) if problems else result

    return run
