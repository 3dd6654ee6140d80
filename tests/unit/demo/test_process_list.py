from pathlib import Path

from phasewatch.demo.process_list import SimulatedProcess, write_process_list

SERVER = SimulatedProcess(("/usr/lib/ollama/llama-server", "--model", "/a b"), 4000, 12.5)


def list_entries(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_a_process_has_its_arguments_name_parent_and_start_as_linux_writes_them(tmp_path: Path) -> None:
    write_process_list(tmp_path, {4001: SERVER})
    assert (tmp_path / "4001" / "cmdline").read_bytes() == b"/usr/lib/ollama/llama-server\0--model\0/a b\0"
    stat = (tmp_path / "4001" / "stat").read_text()
    real = Path("/proc/self/stat").read_text()
    assert len(stat.split()) == len(real.split())
    fields = stat.split()
    assert (fields[0], fields[1], fields[3], fields[21]) == ("4001", "(llama-server)", "4000", "1250")


def test_the_list_has_the_processes_that_run_and_no_others(tmp_path: Path) -> None:
    folder = tmp_path / "proc"
    for running in ({4001: SERVER, 4002: SERVER}, {4002: SERVER}, {4002: SERVER, 4003: SERVER}, {}):
        write_process_list(folder, running)
        assert list_entries(folder) == [str(number) for number in running]
