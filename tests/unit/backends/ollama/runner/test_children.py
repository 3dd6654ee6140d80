"""An Ollama's children in a process list."""

import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from phasewatch.backends.ollama.runner.children import Child, ProcessListing, list_processes, parse_child
from tests.support.fake_procfs import LAYER, MODELS, OLLAMA_PID, OTHER_LAYER, FakeProcfs, build_argv

PROC: Final = Path("/proc")
CHILD: Final = Child(
    pid=50,
    parent=OLLAMA_PID,
    started=5000,
    model_path=f"{MODELS}/blobs/{LAYER}",
    layer=LAYER,
    port=42083,
    slots=2,
    context=8192,
    unified=False,
    embedding=False,
)


def parse(*argv: str) -> Child | None:
    return parse_child(50, OLLAMA_PID, 5000, argv)


def test_the_arguments_of_a_child_name_its_model_port_slots_and_context() -> None:
    assert parse(*build_argv()) == CHILD
    assert CHILD.identity == (50, 5000)


def test_the_program_counts_by_its_name_alone() -> None:
    for program in (
        "llama-server",
        "/opt/homebrew/Cellar/ollama/0.33.0/libexec/lib/ollama/llama-server",
        r"C:\Users\me\AppData\Local\Programs\Ollama\lib\ollama\llama-server.exe",
    ):
        assert parse(*build_argv(program=program)) == CHILD, program
    for program in ("/usr/bin/ollama", "llama-server-monitor", "/srv/llama-server/run", "llama-server.exe.sh"):
        assert parse(*build_argv(program=program)) is None, program
    assert parse() is None


def test_the_model_is_never_the_projector() -> None:
    projector = ("--mmproj", f"{MODELS}/blobs/{OTHER_LAYER}")
    assert parse(*build_argv(LAYER, 42083, 8192, 2, *projector)) == CHILD
    program, *rest = build_argv()
    assert parse(program, *projector, *rest) == CHILD


def test_every_spelling_of_an_option_counts() -> None:
    model, program = f"{MODELS}/blobs/{LAYER}", "llama-server"
    for argv in (
        ("--model", model, "--port", "42083", "-c", "8192", "-np", "2"),
        (f"--model={model}", "--port=42083", "-c=8192", "-np=2"),
        ("-m", model, "--port", "42083", "--ctx-size", "8192", "--parallel", "2"),
        ("-m", "other.gguf", "--model", model, "--port", "1", "--port", "42083", "-c", "1", "-c", "8192", "-np", "2"),
        ("--model", "other.gguf", "-m", "x", "--model", model, "-m", model, "--port=42083", "-c", "8192", "-np", "2"),
    ):
        assert parse(program, *argv) == CHILD, argv


def test_what_is_not_said_is_unknown() -> None:
    model = ("llama-server", "--model", f"{MODELS}/blobs/{LAYER}", "--port", "42083")
    unknown = replace(CHILD, slots=None, context=None)
    for argv in (
        (),
        ("-np", "-1", "-c", "0"),
        ("-np", "two", "-c", "8k"),
        ("-np", "9" * 5000, "-c", "²"),
        ("-c", "-np"),
    ):
        assert parse(*model, *argv) == unknown, argv


def test_a_shared_cache_and_embeddings_are_seen() -> None:
    def parse_more(*more: str) -> Child | None:
        return parse(*build_argv(LAYER, 42083, 8192, 2, *more))

    assert parse_more("--kv-unified") == parse_more("-kvu") == replace(CHILD, unified=True)
    assert parse_more("--kv-unified", "--no-kv-unified") == CHILD
    assert parse_more("--embedding") == parse_more("--embeddings") == replace(CHILD, embedding=True)


def test_a_llama_server_that_runs_no_model_of_an_ollama_is_none_of_its_children() -> None:
    blobs = f"{MODELS}/blobs/"
    for argv in (
        ("--port", "42083"),
        ("--model",),
        ("--model", "/models/llama.gguf", "--port", "42083"),
        ("--model", f"{blobs}sha256-{'d' * 63}", "--port", "42083"),
        ("--model", f"{blobs}{LAYER}.part", "--port", "42083"),
        ("--model", f"{MODELS}/{LAYER}", "--port", "42083"),
        ("--mmproj", f"{blobs}{LAYER}", "--port", "42083"),
        ("--model", f"{blobs}{LAYER}"),
        ("--model", f"{blobs}{LAYER}", "--port", "0"),
        ("--model", f"{blobs}{LAYER}", "--port", "65536"),
        ("--models-dir", blobs, "--port", "42083"),
    ):
        assert parse("llama-server", *argv) is None, argv


def test_nothing_else_of_the_arguments_is_kept() -> None:
    secret = ("--api-key", "hunter2", "--chat-template", "a secret template")
    child = parse(*build_argv(LAYER, 42083, 8192, 2, *secret))
    assert child == CHILD
    assert "hunter2" not in repr(child)


def test_a_process_list_has_the_children_of_every_ollama(tmp_path: Path) -> None:
    procfs = FakeProcfs(tmp_path)
    assert list_processes(tmp_path) == ProcessListing()
    procfs.add(50, build_argv())
    procfs.add(9, build_argv(OTHER_LAYER, port=5), parent=8, started=70)
    procfs.add(60, ["/usr/bin/llama-server", "--model", "/models/llama.gguf", "--port", "8080"])
    listing = list_processes(tmp_path)
    assert [child.identity for child in listing.children] == [(9, 70), (50, 5000)]
    assert listing.children[1] == CHILD
    procfs.remove(50)
    assert [child.pid for child in list_processes(tmp_path).children] == [9]


def test_a_name_with_blanks_and_brackets_hides_no_figure(tmp_path: Path) -> None:
    FakeProcfs(tmp_path).add(50, build_argv(), name="a) S 9 (b")
    assert list_processes(tmp_path).children == (CHILD,)


def test_of_other_programs_nothing_but_the_name_is_looked_at(tmp_path: Path) -> None:
    procfs = FakeProcfs(tmp_path)
    procfs.add(70, build_argv(program="/usr/bin/vault"), name="llama-server")
    (tmp_path / "70" / "stat").unlink()
    assert list_processes(tmp_path) == ProcessListing()


def test_a_process_that_ends_while_it_is_read_is_left_out(tmp_path: Path) -> None:
    procfs = FakeProcfs(tmp_path)
    for pid, missing in ((50, "cmdline"), (51, "stat")):
        procfs.add(pid, build_argv())
        (tmp_path / str(pid) / missing).unlink()
    procfs.add(52, build_argv())
    (tmp_path / "52" / "cmdline").write_text("")  # a zombie
    procfs.add(53, build_argv())
    for text in ("", "53 (llama-server", "53 (llama-server) S 40", "53 (llama-server) S x" + " 7" * 30):
        (tmp_path / "53" / "stat").write_text(text)
        assert list_processes(tmp_path) == ProcessListing(), text
    (tmp_path / "53" / "stat").write_bytes(b"\xff\xfe")
    assert list_processes(tmp_path) == ProcessListing()


def test_without_a_process_list_there_are_no_children(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for folder in (tmp_path / "none", file, tmp_path):
        assert list_processes(folder) == ProcessListing(readable=False), folder


def test_hidden_processes_of_other_users_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invisible, closed = tmp_path / "invisible", tmp_path / "closed"
    FakeProcfs(invisible).remove(1)
    assert list_processes(invisible) == ProcessListing(hidden=True)
    FakeProcfs(closed).add(50, build_argv())

    def refuse(path: Path) -> bytes:
        if path.parent.name == "50":
            raise PermissionError(path)
        return path.read_text().encode()

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert list_processes(closed) == ProcessListing(hidden=True)


@pytest.mark.skipif(not PROC.joinpath("self/stat").exists(), reason="this machine has no /proc")
def test_a_process_of_this_machine_is_found_and_lost() -> None:
    program, *arguments = build_argv(OTHER_LAYER, port=5)
    waiting = [program, "-c", "read line", *arguments]  # a shell by its real name
    with subprocess.Popen(waiting, executable="/bin/sh", stdin=subprocess.PIPE) as process:
        while not (PROC / str(process.pid) / "cmdline").read_bytes():
            time.sleep(0.001)  # the kernel shows no arguments for a moment
        ours = [child for child in list_processes(PROC).children if child.pid == process.pid]
    (child,) = ours
    assert (child.parent, child.layer, child.port, child.context) == (os.getpid(), OTHER_LAYER, 5, 8192)
    assert child.started > 0
    assert child.identity not in {other.identity for other in list_processes(PROC).children}
