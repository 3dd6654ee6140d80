"""Which process listens on the address of an Ollama: its children are those of that process.

Linux shows the listening sockets of a network namespace to everybody, and the sockets of a process only to its own user
and to root. So the owner is not always known.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from phasewatch.backends.ollama.runner.children import ProcessListing

_LISTENING: Final = "0A"
"""State of a listening socket in /proc/net/tcp (proc_net(5))."""

_ADDRESS_FIELD: Final = 1
_STATE_FIELD: Final = 3
_INODE_FIELD: Final = 9

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def select_own_children(listing: ProcessListing, procfs: Path, url: str) -> ProcessListing:
    """The listing without the children of other Ollamas on the machine, where it can be seen whose they are.

    A single parent is not asked for its sockets: behind a proxy or a published port it listens on another one.

    Args:
        listing: the process list.
        procfs: where it was read.
        url: address of the Ollama.
    """
    parents = {child.parent for child in listing.children}
    owners = find_owners(procfs, parents, url) if len(parents) > 1 else None
    if owners is None or len(owners) != 1:
        return listing
    return replace(listing, children=tuple(child for child in listing.children if child.parent in owners))


def find_owners(procfs: Path, pids: Iterable[int], url: str) -> frozenset[int] | None:
    """Those of some processes that listen on the port of an address; None if that cannot be seen for all of them.

    Args:
        procfs: where the process list of the server's machine is mounted.
        pids: process ids.
        url: the address.
    """
    parts = urlsplit(url)
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    owners: set[int] = set()
    for pid in pids:
        try:
            inodes = set(_list_listening(procfs / str(pid), port))
            listens = bool(inodes) and any(inode in inodes for inode in _list_sockets(procfs / str(pid)))
        except (OSError, ValueError):
            return None
        if listens:
            owners.add(pid)
    return frozenset(owners)


def _list_listening(process: Path, port: int) -> Iterator[str]:
    """The sockets that listen on a port in the network namespace of a process.

    Raises:
        OSError: the process has ended.
        ValueError: a table is not what the kernel writes.
    """
    for table in ("net/tcp", "net/tcp6"):
        path = process / table
        if table == "net/tcp6" and not path.exists():  # a kernel without IPv6
            continue
        for line in path.read_text(errors="replace").splitlines()[1:]:
            fields = line.split()
            if len(fields) <= _INODE_FIELD or fields[_STATE_FIELD] != _LISTENING:
                continue
            if int(fields[_ADDRESS_FIELD].rpartition(":")[2], 16) == port:
                yield fields[_INODE_FIELD]


def _list_sockets(process: Path) -> Iterator[str]:
    """The sockets that a process has open.

    Raises:
        OSError: the process is another user's, or has ended.
    """
    for entry in (process / "fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            yield target[len("socket:[") : -1]
