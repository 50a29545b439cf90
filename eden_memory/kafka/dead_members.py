"""Members of a consumer group whose process was killed: taken out, so that nobody waits for their session timeout.

A member's client id names its process. Only that of a process of this kernel and pid namespace can be proved dead;
every other member is left to its timeout.
"""

from contextlib import suppress
from typing import Any

import structlog
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import GroupCoordinatorNotAvailableError, KafkaError
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.group import LeaveGroupRequest

from eden_memory.error_text import describe
from eden_memory.own_process import proved_dead

log = structlog.get_logger()


async def remove_dead_members(client: dict[str, Any], group: str) -> list[str]:
    """Take the members that are proved dead out of a group; their client ids. What the broker refuses is left."""
    kafka: Any = AIOKafkaClient(**client)
    removed: list[str] = []
    try:
        await kafka.bootstrap()
        node = await kafka.coordinator_lookup(CoordinationType.GROUP, group)
        described = await kafka.send(node, DescribeGroupsRequest([group]))
        for member_id, client_id, *_ in described.groups[0][5]:
            if proved_dead(client_id):
                await kafka.send(node, LeaveGroupRequest(group, member_id))
                removed.append(client_id)
    except GroupCoordinatorNotAvailableError:  # a new broker, in which no group has been yet
        return []
    except KafkaError as error:
        log.info("dead members were not looked for", group=group, error=describe(error))
    finally:
        with suppress(KafkaError):
            await kafka.close()
    if removed:
        log.info("dead members left their group", group=group, members=len(removed))
    return removed
