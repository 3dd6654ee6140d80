"""A process list on disk, as the kernel shows it below /proc."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

OLLAMA_PID: Final = 40
LAYER: Final = f"sha256-{'d' * 64}"
OTHER_LAYER: Final = f"sha256-{'e' * 64}"
MODELS: Final = "/usr/share/ollama/.ollama/models"


def build_argv(
    layer: str = LAYER, port: int = 42083, context: int = 8192, slots: int = 2, *more: str, program: str = ""
) -> list[str]:
    """The arguments with which Ollama 0.33 starts a child, and some more."""
    program = program or "/usr/lib/ollama/llama-server"
    model = ["--model", f"{MODELS}/blobs/{layer}", "--port", str(port), "--host", "127.0.0.1"]
    size = ["-c", str(context), "-np", str(slots)]
    return [program, *model, "--no-webui", "--offline", *size, "--log-verbosity", "4", "--flash-attn", "auto", *more]


class FakeProcfs:
    """A folder with a process list, which begins with an init and an Ollama. Times are clock ticks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.add(1, ["/sbin/init"], parent=0, started=1)
        self.add(OLLAMA_PID, ["/usr/bin/ollama", "serve"], parent=1, started=300)
        (folder / "meminfo").write_text("MemTotal: 1 kB\n")

    def add(
        self, pid: int, argv: Sequence[str], parent: int = OLLAMA_PID, started: int = 5000, name: str | None = None
    ) -> None:
        """Let a process appear; its name is that of the program unless another is given."""
        process = self.folder / str(pid)
        process.mkdir(parents=True)
        short = (argv[0].rsplit("/", maxsplit=1)[-1] if name is None else name)[:15]
        unread = " ".join("7" for _ in range(17))
        (process / "stat").write_text(f"{pid} ({short}) S {parent} {unread} {started} 3 4 5\n")
        (process / "cmdline").write_text("".join(f"{argument}\0" for argument in argv))

    def remove(self, pid: int) -> None:
        """Let a process end."""
        shutil.rmtree(self.folder / str(pid))
