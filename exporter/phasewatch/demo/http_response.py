"""HTTP responses of the simulated servers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete response.

    Attributes:
        status: HTTP status code.
        content_type: the Content-Type header.
        body: unencoded bytes.
    """

    status: int
    content_type: str
    body: bytes
