"""An Ollama's children: the llama-server processes that run its models (0.30 and newer), from the process list.

Ollama starts one for each model as `llama-server --model .../blobs/sha256-<digest> --port <free> -c <context> -np
<slots> ...` (`startLlamaServer` in llm/llama_server.go). Nothing else of the arguments is kept, since they may hold a
key; of other programs nothing but the name is looked at.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from phasewatch.backends.ollama.inventory import extract_layer

ChildIdentity = tuple[int, int]
"""Process id and start time of a process: the id alone is used again."""

_Option = tuple[str, str | None]
"""Name and value of an option."""

_PROGRAM: Final = "llama-server"
_MODEL: Final = frozenset({"-m", "--model"})
_PORT: Final = frozenset({"--port"})
_CONTEXT: Final = frozenset({"-c", "--ctx-size"})
_SLOTS: Final = frozenset({"-np", "--parallel"})
_UNIFIED: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("-kvu", "--kv-unified"), True),
    **dict.fromkeys(("-no-kvu", "--no-kv-unified"), False),
}
_SLEEP: Final = frozenset({"--sleep-idle-seconds"})
_EMBEDDING: Final = frozenset({"--embedding", "--embeddings"})
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,9}")
_LARGEST_PORT: Final = 65_535

_PARENT_FIELD: Final = 1
_START_FIELD: Final = 19
"""Places in /proc/PID/stat (proc_pid_stat(5)) after the name, which is in brackets and may hold others and blanks."""


@dataclass(frozen=True, slots=True)
class Child:
    """A llama-server process that runs a model of an Ollama.

    Attributes:
        pid: its process id.
        parent: process id of its parent, the Ollama.
        started: its start time in clock ticks since the machine's; constant for a process.
        model_path: file with the model's weights.
        layer: name of that file, `sha256-` and the digest of the layer.
        port: port on 127.0.0.1 that it listens on.
        slots: number of requests that it runs at once; None if not given.
        context: tokens of context, all slots together; None if not given.
        unified: whether the slots share one KV cache.
        embedding: whether it makes embeddings instead of text.
        sleep_idle: seconds without a request after which it falls asleep; 0 if it never does.
    """

    pid: int
    parent: int
    started: int
    model_path: str
    layer: str
    port: int
    slots: int | None
    context: int | None
    unified: bool
    embedding: bool
    sleep_idle: int = 0

    @property
    def identity(self) -> ChildIdentity:
        """Process id and start time."""
        return self.pid, self.started


@dataclass(frozen=True, slots=True)
class ProcessListing:
    """The children in a process list, by process id.

    Attributes:
        children: all that run a model of some Ollama.
        readable: whether there is a process list.
        hidden: whether it lacks processes of other users.
    """

    children: tuple[Child, ...] = ()
    readable: bool = True
    hidden: bool = False


def parse_child(pid: int, parent: int, started: int, argv: Sequence[str]) -> Child | None:
    """The child with these arguments; None if they are not those of a llama-server that runs a model of an Ollama.

    Args:
        pid: process id.
        parent: process id of the parent.
        started: start time of the process in any unit; 0 where unknown.
        argv: name of the program and its arguments. The last of several values counts, as it does for llama-server.
    """
    if not argv or not _is_llama_server(argv[0]):
        return None
    options = tuple(_list_options(argv[1:]))
    model_path = _get_value(options, _MODEL) or ""
    layer, port = extract_layer(model_path), _get_number(options, _PORT)
    if layer is None or port is None or port > _LARGEST_PORT:
        return None
    return Child(
        pid=pid,
        parent=parent,
        started=started,
        model_path=model_path,
        layer=layer,
        port=port,
        slots=_get_number(options, _SLOTS),
        context=_get_number(options, _CONTEXT),
        unified=next((_UNIFIED[name] for name, _ in reversed(options) if name in _UNIFIED), False),
        embedding=any(name in _EMBEDDING for name, _ in options),
        sleep_idle=_get_number(options, _SLEEP) or 0,
    )


def list_processes(procfs: Path) -> ProcessListing:
    """The children in the process list below a folder. Processes that end meanwhile are left out; raises nothing.

    Args:
        procfs: where the process list of the server's machine is mounted, usually /proc.
    """
    try:
        pids = sorted(int(entry.name) for entry in procfs.iterdir() if entry.name.isascii() and entry.name.isdigit())
    except OSError:
        pids = []
    children: list[Child] = []
    hidden = 1 not in pids  # every namespace has a first process
    for pid in pids:
        try:
            child = _read_child(procfs / str(pid), pid)
        except PermissionError:
            hidden = True
        except (OSError, ValueError):
            continue
        else:
            children += [child] if child is not None else []
    return ProcessListing(tuple(children), readable=bool(pids), hidden=bool(pids) and hidden)


def _read_child(folder: Path, pid: int) -> Child | None:
    """The child whose process has this folder; None if that is another process.

    Raises:
        OSError: the process has ended, or belongs to another user and is hidden.
        ValueError: its entry is not what the kernel writes.
    """
    argv = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
    if not _is_llama_server(argv[0]):
        return None
    _, _, text = (folder / "stat").read_bytes().decode(errors="replace").rpartition(")")
    fields = text.split()
    if len(fields) <= _START_FIELD:
        raise ValueError("expected the fields of /proc/PID/stat")
    return parse_child(pid, int(fields[_PARENT_FIELD]), int(fields[_START_FIELD]), argv)


def _is_llama_server(program: str) -> bool:
    return re.split(r"[/\\]", program)[-1].removesuffix(".exe") == _PROGRAM


def _list_options(arguments: Sequence[str]) -> Iterator[_Option]:
    """Each option with its value, which is the rest of it after `=` or the argument after it; None for the last."""
    for option, following in zip(arguments, [*arguments[1:], None], strict=True):
        name, equals, value = option.partition("=")
        if name.startswith("-"):
            yield name, value if equals else following


def _get_value(options: Sequence[_Option], names: frozenset[str]) -> str | None:
    return next((value for name, value in reversed(options) if name in names), None)


def _get_number(options: Sequence[_Option], names: frozenset[str]) -> int | None:
    """A positive number; None for another value, such as 0 for the default."""
    value = _get_value(options, names)
    return int(value) if value is not None and _NUMBER.fullmatch(value) else None
