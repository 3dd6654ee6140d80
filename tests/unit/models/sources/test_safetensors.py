import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phasewatch.models.errors import ModelError
from phasewatch.models.shape.tensors import Tensor
from phasewatch.models.sources import safetensors
from phasewatch.models.sources.safetensors import WeightIndex, read_index, read_tensors
from tests.support.model_folders import refusal, write_header, write_json, write_tensors

INDEX = "model.safetensors.index.json"


def read_file(path: Path) -> tuple[Tensor, ...]:
    """The tensors of the only weight file of a folder."""
    tensors = read_tensors(path.parent, None)
    assert tensors is not None
    return tensors


def entry(dtype: object = "BF16", shape: object = (2, 3), offsets: object = (0, 12)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def write_index(folder: Path, files: object, **metadata: object) -> None:
    weight_map = {f"t{number}": name for number, name in enumerate(files)} if isinstance(files, list) else files
    write_json(folder / INDEX, {"metadata": metadata, "weight_map": weight_map})


def test_a_header_lists_every_tensor_with_its_size(tmp_path: Path) -> None:
    path = write_tensors(tmp_path / "m.safetensors", {"a": ("BF16", (2, 3)), "b": ("F32", ()), "c": ("F8_E4M3", (5,))})
    assert read_file(path) == (Tensor("a", (2, 3), 12, 6), Tensor("b", (), 4, 1), Tensor("c", (5,), 5, 5))


def test_packed_elements_have_unknown_parameters_and_scales_have_none(tmp_path: Path) -> None:
    path = write_tensors(
        tmp_path / "m.safetensors",
        {
            "l.qweight": ("I32", (8, 8)),
            "l.mlp.experts.gate_up_proj_blocks": ("U8", (8,)),
            "l.qzeros": ("I32", (8,)),
            "l.scales": ("F16", (8,)),
            "l.weight_scale_inv": ("F32", (8,)),
            "l.weight_shape": ("I64", (2,)),
            "l.mlp.experts.gate_up_proj_scales": ("U8", (8,)),
            "l.weight.quant_state.bitsandbytes__nf4": ("U8", (8,)),
        },
    )
    assert [tensor.parameters for tensor in read_file(path)] == [None, None, 0, 0, 0, 0, 0, 0]


def test_a_header_of_4_gigabytes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    with path.open("wb") as file:
        file.write((4 * 2**30).to_bytes(8, "little"))
        file.truncate(5 * 2**30)
    with pytest.raises(ModelError) as refused:
        read_file(path)
    assert str(refused.value) == f"{path}: a header of 4294967296 bytes is longer than the format allows"


def test_a_file_shorter_than_its_header_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"\x05", (100).to_bytes(8, "little") + b"{}"):
        path = tmp_path / "m.safetensors"
        path.write_bytes(content)
        assert re.search(r"too short for its header of \d+ bytes: is the file complete\?$", refusal(read_file, path)), (
            content
        )


def test_a_header_that_contradicts_itself_or_its_file_is_refused(tmp_path: Path) -> None:
    cases: list[tuple[object, str]] = [
        (b"not json", ": no valid JSON: "),
        (b"[" * 100_000, ": no valid JSON: "),
        (b'{"a": {}, "a": {}}', ": no valid JSON: 'a' is given twice"),
        ([], ": expected a JSON object"),
        ({"a": 5}, ": 'a': expected dtype, shape and data_offsets"),
        ({"a": entry(dtype="BF17")}, ": 'a': dtype: 'BF17' is not known"),
        ({"a": entry(dtype=["BF16"])}, ": 'a': dtype: a list is not known"),
        ({"a": entry(shape=None)}, ": 'a': shape: expected whole numbers of 0 or more, found None"),
        ({"a": entry(shape=[-2, -3])}, ": 'a': shape: expected whole numbers of 0 or more, found a list"),
        ({"a": entry(shape=[2.0, 3])}, ": 'a': shape: expected whole numbers of 0 or more, found a list"),
        ({"a": entry(shape=[True, 6])}, ": 'a': shape: expected whole numbers of 0 or more, found a list"),
        ({"a": entry(shape=[2**70, 0])}, ": 'a': shape: expected whole numbers of 0 or more, found a list"),
        ({"a": entry(shape=[1] * 100)}, ": 'a': shape: expected whole numbers of 0 or more, found a list"),
        ({"a": entry(offsets=[-12, 0])}, ": 'a': data_offsets: expected where its data begins and ends"),
        ({"a": entry(offsets=[12, 0])}, ": 'a': data_offsets: expected where its data begins and ends"),
        ({"a": entry(offsets=[12])}, ": 'a': data_offsets: expected where its data begins and ends"),
        ({"a": entry(offsets=[0, 10])}, ": 'a': 10 bytes cannot hold 6 elements of BF16: is the file damaged?"),
        ({"a": entry(offsets=[4, 16])}, ": 'a': data_offsets: beyond the end of the file: is it complete?"),
        (
            {"a": entry(), "b": entry(shape=[1], offsets=[10, 12])},
            ": 'b': data_offsets: overlaps another tensor: is the file damaged?",
        ),
    ]
    for document, expected in cases:
        path = write_header(tmp_path / "m.safetensors", document, 12)
        message = refusal(read_file, path)
        assert message.startswith(f"{path}{expected}"), expected


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content=st.binary(max_size=60))
def test_any_short_content_of_a_file_is_refused_with_its_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.safetensors"
    for file_content in (content, len(content).to_bytes(8, "little") + content):
        path.write_bytes(file_content)
        with pytest.raises(ModelError, match=str(path)):
            read_file(path)


def test_an_index_gives_the_total_and_the_files(tmp_path: Path) -> None:
    assert read_index(tmp_path) is None
    write_index(tmp_path, ["b.safetensors", "a.safetensors", "b.safetensors"], total_size=16_060_522_496)
    assert read_index(tmp_path) == WeightIndex(16_060_522_496.0, ("a.safetensors", "b.safetensors"))
    write_index(tmp_path, ["a.safetensors"])
    assert read_index(tmp_path) == WeightIndex(None, ("a.safetensors",))


def test_an_index_that_points_to_other_files_is_refused(tmp_path: Path) -> None:
    cases: list[object] = [
        "../a.safetensors",
        "/etc/a.safetensors",
        "x/a.safetensors",
        "..",
        "a.bin",
        "",
        "a\0.safetensors",
        5,
        None,
    ]
    for name in cases:
        write_index(tmp_path, [name])
        message = refusal(read_index, tmp_path)
        assert message.startswith(f"{tmp_path / INDEX}: weight_map: expected the names of files beside it, found"), name


def test_an_invalid_index_is_reported_with_its_key(tmp_path: Path) -> None:
    cases: list[tuple[Any, object, str]] = [
        ({}, 5, "weight_map: expected the file of each tensor"),
        ("a.safetensors", 5, "weight_map: expected the file of each tensor"),
        ([f"{number}.safetensors" for number in range(1001)], 5, "weight_map: 1001 files are more than the 1000"),
        (["a.safetensors"], "5", "metadata.total_size: expected a number of bytes, found '5'"),
        (["a.safetensors"], -5, "metadata.total_size: expected a number of bytes, found -5"),
        (["a.safetensors"], True, "metadata.total_size: expected a number of bytes, found True"),
        (["a.safetensors"], float("nan"), "metadata.total_size: expected a number of bytes, found nan"),
        (["a.safetensors"], 0, "metadata.total_size: expected a number of bytes, found 0"),
        (["a.safetensors"], 10**400, "metadata.total_size: expected a number of bytes, found 1000"),
        (["a.safetensors"], 1e308, "metadata.total_size: expected a number of bytes, found 1e+308"),
        (["a.safetensors"], float("inf"), "metadata.total_size: expected a number of bytes, found inf"),
    ]
    for files, size, expected in cases:
        write_index(tmp_path, files, total_size=size)
        message = refusal(read_index, tmp_path)
        assert message.startswith(f"{tmp_path / INDEX}: {expected}"), (len(files), size)


def test_the_tensors_of_a_model_are_those_of_all_files_of_its_index(tmp_path: Path) -> None:
    index = WeightIndex(None, ("a.safetensors", "b.safetensors"))
    write_tensors(tmp_path / "a.safetensors", {"x": ("BF16", (1,))})
    assert read_tensors(tmp_path, index) is None
    write_tensors(tmp_path / "b.safetensors", {"y": ("BF16", (2,))})
    write_tensors(tmp_path / "c.safetensors", {"z": ("BF16", (3,))})
    tensors = read_tensors(tmp_path, index)
    assert tensors is not None
    assert [tensor.name for tensor in tensors] == ["x", "y"]


def test_the_headers_of_a_folder_are_bounded_in_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in range(3):
        write_tensors(tmp_path / f"{file}.safetensors", {f"t{file}{part}": ("BF16", (1,)) for part in range(2)})
    cases = [
        ("MAX_HEADER_SIZE", 400, "headers of more than 0 MB in all are not read"),
        ("MAX_TENSORS", 5, "more than 5 tensors are not"),
    ]
    for name, limit, expected in cases:
        assert read_tensors(tmp_path, None) is not None, name
        with monkeypatch.context() as patch:
            patch.setattr(safetensors, name, limit)
            message = refusal(read_tensors, tmp_path, None)
        assert message.startswith(f"{tmp_path}: {expected}"), name


def test_a_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        write_tensors(tmp_path / name, {"x": ("BF16", (1,))})
    with pytest.raises(ModelError, match=r"b\.safetensors: 'x' is in another file as well$"):
        read_tensors(tmp_path, None)


def test_weights_that_a_folder_holds_twice_are_counted_once(tmp_path: Path) -> None:
    cases: list[tuple[list[str], list[str]]] = [
        (["model.safetensors", "consolidated.safetensors"], ["model"]),
        (["model-1.safetensors", "model-2.safetensors", "consolidated.safetensors"], ["model-1", "model-2"]),
        (["consolidated.safetensors"], ["consolidated"]),
        (["model-1.safetensors", "adapter_model.safetensors"], ["model-1"]),
    ]
    for number, (present, read) in enumerate(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name in present:
            write_tensors(folder / name, {name.removesuffix(".safetensors"): ("BF16", (1,))})
        tensors = read_tensors(folder, None)
        assert tensors is not None, present
        assert [tensor.name for tensor in tensors] == read, present


def test_a_folder_without_weights_has_no_tensors(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    assert read_tensors(tmp_path, None) is None


def test_a_folder_with_too_many_weight_files_is_refused(tmp_path: Path) -> None:
    for number in range(1001):
        (tmp_path / f"{number}.safetensors").touch()
    with pytest.raises(ModelError, match=r"more than the 1000 \.safetensors files that are read$"):
        read_tensors(tmp_path, None)
