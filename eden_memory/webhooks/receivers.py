"""Reach a receiver: which addresses may be told, and one POST to an address that was checked.

The address is looked up, checked and connected to as a number, so a name cannot point elsewhere in between. No
redirect is followed, no proxy used, no cookie kept, and a response's body is not read.
"""

import asyncio
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import httpx2

from eden_memory.errors import EdenError, Invalid
from eden_memory.webhooks.webhook_rules import LONGEST_URL, MOST_WEBHOOKS

SECONDS = 15.0
"""For one attempt, from connecting to the status."""
MOST_ADDRESSES = 4
TIMEOUT = httpx2.Timeout(SECONDS, connect=SECONDS / MOST_ADDRESSES)
PLAIN = {"content-type": "application/json", "user-agent": "eden-memory"}
UNICAST = ip_network("2000::/3")
"""All IPv6 addresses of the internet."""
NAT64 = ip_network("64:ff9b::/96")
TUNNELS = (ip_network("2002::/16"), ip_network("2001::/32"))
"""6to4 and Teredo: IPv6 addresses that lead to IPv4 ones."""


class PrivateAddress(EdenError):  # noqa: N818 - an answer
    """A receiver is, or has moved to, an address that only this network reaches."""


def checked_url(url: str, *, allow_private: bool) -> httpx2.URL:
    """Return a receiver's URL. Invalid unless it is https with a host (or http, where private ones are allowed)."""
    try:
        found = httpx2.URL(url)
    except httpx2.InvalidURL:
        raise Invalid("this is not a URL") from None
    try:
        found.raw_host.decode().encode("idna")  # as a look-up does
    except UnicodeError:
        raise Invalid("this host is no name that can be looked up") from None
    if found.port is not None and not 0 < found.port < 65_536:
        raise Invalid("there is no such port")
    schemes = ("https", "http") if allow_private else ("https",)
    if found.scheme not in schemes or not found.host or len(url) > LONGEST_URL:
        raise Invalid(f"a webhook's URL begins with {' or '.join(schemes)}:// and names a host")
    if found.userinfo or found.fragment:
        raise Invalid(
            "a webhook's URL has neither a password nor a fragment", "Receivers check the signature."
        )
    return found


def is_public(address: str) -> bool:
    """Whether an IP address is reached over the internet: not private, loopback, link-local or multicast."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        if found in NAT64:
            return is_public(str(IPv4Address(int(found) & 0xFFFFFFFF)))
        if found.ipv4_mapped is not None:
            return is_public(str(found.ipv4_mapped))
        if found not in UNICAST or any(found in network for network in TUNNELS):
            return False
    return found.is_global and not found.is_multicast


async def addresses_of(
    url: httpx2.URL, *, allow_private: bool, threads: ThreadPoolExecutor | None = None
) -> list[str]:
    """Return the addresses of a URL's host; PrivateAddress if one of them is not public, OSError if there is none."""
    port = url.port or (443 if url.scheme == "https" else 80)
    look_up = partial(socket.getaddrinfo, url.raw_host.decode(), port, type=socket.SOCK_STREAM)
    async with asyncio.timeout(SECONDS):
        found = await asyncio.get_running_loop().run_in_executor(threads, look_up)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not allow_private and not all(map(is_public, addresses)):
        raise PrivateAddress(
            "the webhook's host is at a private address",
            "If it is yours, an operator adds it with `eden webhooks add --allow-private`.",
        )
    return addresses[:MOST_ADDRESSES]


class Receivers:
    """Looks up receivers, and posts to them; `close` it in the end."""

    def __init__(self) -> None:
        # A connection is not used again: it belongs to a host name, and the transport would know it by its number.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        self._transport = httpx2.AsyncHTTPTransport(limits=limits)
        self._lookups = ThreadPoolExecutor(MOST_WEBHOOKS, "webhooks")
        """Threads of its own: a name server that does not answer holds back nobody else."""

    async def addresses(self, url: httpx2.URL, *, allow_private: bool) -> list[str]:
        """Return as :func:`addresses_of`, in threads of its own."""
        return await addresses_of(url, allow_private=allow_private, threads=self._lookups)

    async def post(
        self, url: httpx2.URL, addresses: Sequence[str], headers: Mapping[str, str], body: bytes
    ) -> str | None:
        """Post to the first address that answers; return why the receiver did not take it, None if it did."""
        failure = "no address"
        try:
            async with asyncio.timeout(SECONDS):
                for address in addresses:
                    request = httpx2.Request(
                        "POST",
                        url.copy_with(host=address),
                        headers={**headers, **PLAIN, "host": url.netloc.decode("ascii")},
                        content=body,
                        extensions={"sni_hostname": url.raw_host.decode(), "timeout": TIMEOUT.as_dict()},
                    )
                    try:
                        response = await self._transport.handle_async_request(request)
                    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                        failure = type(error).__name__
                        continue
                    await response.aclose()
                    return None if response.is_success else f"status {response.status_code}"
        except (httpx2.HTTPError, OSError) as error:
            return type(error).__name__
        return failure

    async def close(self) -> None:
        """Close the connections; a look-up that hangs is left behind."""
        self._lookups.shutdown(wait=False, cancel_futures=True)
        await self._transport.aclose()
