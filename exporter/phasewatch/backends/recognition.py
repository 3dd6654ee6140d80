"""Recognises the kind of a server of which only the address is known."""

from collections.abc import Iterable

from phasewatch.backends.backend import Backend
from phasewatch.backends.client import ServerClient, parse_json
from phasewatch.base.errors import ScrapeError
from phasewatch.scrape.http import HTTP_OK


async def recognise_backend(client: ServerClient, candidates: Iterable[Backend]) -> Backend | None:
    """Request the sign of each kind in turn; the first that matches. Closes the client.

    Args:
        client: client of the server.
        candidates: the kinds that the server may be of.

    Returns:
        None if no sign matches, or the server did not answer at all: then it is not asked further.
    """
    try:
        for backend in candidates:
            if backend.sign is None:
                continue
            response = await client.get(backend.sign.path)
            if response.status == HTTP_OK and backend.sign.matches(parse_json(response.body)):
                return backend
    except ScrapeError:
        return None
    finally:
        await client.close()
    return None
