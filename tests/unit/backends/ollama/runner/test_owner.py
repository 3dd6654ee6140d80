"""Whose the children are, by the process that listens on the address of the Ollama."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from phasewatch.backends.ollama.runner.children import Child, ProcessListing
from phasewatch.backends.ollama.runner.owner import find_owners, select_own_children

PROCFS = Path("/proc")

pytestmark = pytest.mark.skipif(not PROCFS.exists(), reason="there is no process list on this system")

LISTENER = (
    "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
)


@contextmanager
def listen_elsewhere() -> Iterator[tuple[int, int]]:
    """Another process that listens; its id and port."""
    with subprocess.Popen(  # our own interpreter
        [sys.executable, "-c", LISTENER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.communicate("\n")


def start_child(pid: int, parent: int) -> Child:
    return Child(pid, parent, 1, "/blobs/sha256-0", "sha256-0", 40000 + pid, 1, 4096, unified=False, embedding=False)


def test_the_owner_is_the_process_that_listens_on_the_port() -> None:
    with listen_elsewhere() as (pid, port), socket.create_server(("127.0.0.1", 0)) as ours:
        url, own = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{ours.getsockname()[1]}/ollama"
        assert find_owners(PROCFS, [pid, os.getpid()], url) == frozenset({pid})
        assert find_owners(PROCFS, [pid, os.getpid()], own) == frozenset({os.getpid()})


def test_children_of_another_ollama_are_left_out_where_the_owner_is_seen() -> None:
    with listen_elsewhere() as (pid, port):
        theirs, ours = start_child(1, os.getpid()), start_child(2, pid)
        listing = ProcessListing((theirs, ours))
        assert select_own_children(listing, PROCFS, f"http://127.0.0.1:{port}").children == (ours,)


def test_without_a_listener_among_the_parents_all_children_stay() -> None:
    with listen_elsewhere() as (pid, port):
        listing = ProcessListing((start_child(1, os.getpid()), start_child(2, os.getppid())))
        assert select_own_children(listing, PROCFS, f"http://127.0.0.1:{port}") == listing
        assert find_owners(PROCFS, [pid], f"http://127.0.0.1:{port}") == frozenset({pid})


def test_the_only_parent_is_the_owner_whatever_it_listens_on() -> None:
    listing = ProcessListing((start_child(1, os.getpid()), start_child(2, os.getpid())))
    assert select_own_children(listing, PROCFS, "http://127.0.0.1:1") == listing


def test_an_owner_that_cannot_be_seen_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "7/net").mkdir(parents=True)
    (tmp_path / "7/net/tcp").write_text("  sl  local_address\n   0: 0100007F:2CAA 00000000:0000 0A 0 0 0 0 0 99 1\n")
    assert find_owners(tmp_path, [7], "http://127.0.0.1:11434") is None
    (tmp_path / "7/fd").mkdir()
    (tmp_path / "7/fd/3").symlink_to("socket:[99]")
    assert find_owners(tmp_path, [7], "http://127.0.0.1:11434") == frozenset({7})
    (tmp_path / "7/net/tcp").write_text("head\n   0: 0100007F:2CAA 00000000:0000 01 0 0 0 0 0 99 1\n")
    assert find_owners(tmp_path, [7], "http://127.0.0.1:11434") == frozenset()
    assert find_owners(tmp_path, [7, 8], "http://127.0.0.1:11434") is None  # 8 has ended
