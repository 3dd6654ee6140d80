"""Tensors of a model from the headers of its safetensors files, and the index of a sharded model.

A file consists of the length of its header (8 bytes, little-endian), the header, a JSON object that maps names to
`{"dtype", "shape", "data_offsets"}`, and the data (https://huggingface.co/docs/safetensors). Only headers are read, and
checked against the size of the file.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from phasewatch.models.errors import ModelError, shorten
from phasewatch.models.shape.tensors import Tensor
from phasewatch.models.sources.files import find_file, is_plain_name, parse_json_object, read_json_file

MAX_HEADER_SIZE: Final = 100_000_000
"""Bytes: the longest header that the format allows, also applied to all headers of a folder together."""

MAX_TENSORS: Final = 1_000_000
"""Tensors of a folder. Mixtures with a tensor per expert have tens of thousands."""

MAX_FILES: Final = 1000

_INDEX: Final = "model.safetensors.index.json"
_LENGTH_BYTES: Final = 8
_MAX_DIMENSIONS: Final = 32
_SIZE_LIMIT: Final = 2**63

_BITS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("C64", "F64", "I64", "U64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("BF16", "F16", "I16", "U16"), 16),
    **dict.fromkeys(("BOOL", "F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2", "F8_E5M2FNUZ", "F8_E8M0", "I8", "U8"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
"""Bits of an element, by data type."""

_UNPACKED_TYPES: Final = frozenset(
    {"F64", "F32", "BF16", "F16", "F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2", "F8_E5M2FNUZ", "F4", "I8"}
)
"""Data types whose elements are single parameters. Elements of other types may pack several."""

_AUXILIARY: Final = re.compile(
    r"(?:scales?|scale_inv|scale_\d|zeros|zero_points?|g_idx|weight_shape|absmax|quant_map|quant_state\w*|SCB)$"
    r"|\.quant_state\.|\.absmax$|\.nested_\w+$"
)
"""Names of tensors that only describe how others are quantised."""


@dataclass(frozen=True, slots=True)
class WeightIndex:
    """The index of a sharded model.

    Attributes:
        total_size: bytes of all tensors; None if missing.
        files: names of the weight files, sorted.
    """

    total_size: float | None
    files: tuple[str, ...]


def read_index(folder: Path) -> WeightIndex | None:
    """The index of a folder; None if it has none.

    Raises:
        ModelError: it cannot be read, or names anything other than files beside it.
    """
    path = find_file(folder, _INDEX)
    if path is None:
        return None
    place = str(folder / _INDEX)
    document = read_json_file(path, MAX_HEADER_SIZE)
    names = document.get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ModelError(f"{place}: weight_map: expected the file of each tensor")
    files = set()
    for name in names.values():
        if not isinstance(name, str) or not is_plain_name(name) or not name.endswith(".safetensors"):
            raise ModelError(f"{place}: weight_map: expected the names of files beside it, found {shorten(name)}")
        files.add(name)
    if len(files) > MAX_FILES:
        raise ModelError(f"{place}: weight_map: {len(files)} files are more than the {MAX_FILES} that are read")
    return WeightIndex(_read_total_size(document, place), tuple(sorted(files)))


def read_tensors(folder: Path, index: WeightIndex | None) -> tuple[Tensor, ...] | None:
    """The tensors of a folder; None if a weight file is missing.

    Raises:
        ModelError: a file cannot be read or is damaged.
    """
    names = index.files if index is not None else _list_weight_files(folder)
    files = {name: find_file(folder, name) for name in names}
    if not files or None in files.values():
        return None
    tensors: dict[str, Tensor] = {}
    header_bytes = 0
    for name, path in files.items():
        text, data_bytes = _read_header_text(path or folder / name)
        header_bytes += len(text)
        if header_bytes > MAX_HEADER_SIZE:
            raise ModelError(f"{folder}: headers of more than {MAX_HEADER_SIZE // 10**6} MB in all are not read")
        for tensor in _parse_header(path or folder / name, text, data_bytes):
            if tensor.name in tensors:
                raise ModelError(f"{folder / name}: {shorten(tensor.name)} is in another file as well")
            tensors[tensor.name] = tensor
        if len(tensors) > MAX_TENSORS:
            raise ModelError(f"{folder}: more than {MAX_TENSORS} tensors are not read")
    if not any(tensor.size for tensor in tensors.values()):
        raise ModelError(f"{folder}: the weight files hold nothing: are they complete?")
    return tuple(tensors.values())


def _read_header_text(path: Path) -> tuple[bytes, int]:
    """The header of a file as JSON text, and the number of data bytes after it."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if length > MAX_HEADER_SIZE:
                raise ModelError(f"{path}: a header of {length} bytes is longer than the format allows")
            if length > size - _LENGTH_BYTES:
                raise ModelError(f"{path}: too short for its header of {length} bytes: is the file complete?")
            return file.read(length), size - _LENGTH_BYTES - length
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error


def _parse_header(path: Path, text: bytes, data_bytes: int) -> tuple[Tensor, ...]:
    entries = {name: entry for name, entry in parse_json_object(text, str(path)).items() if name != "__metadata__"}
    tensors = [_parse_tensor(path, name, entry) for name, entry in entries.items()]
    _refuse_overlaps(path, entries, data_bytes)
    return tuple(tensors)


def _parse_tensor(path: Path, name: str, entry: object) -> Tensor:
    place = f"{path}: {shorten(name)}"
    if not isinstance(entry, dict):
        raise ModelError(f"{place}: expected dtype, shape and data_offsets")
    dtype = entry.get("dtype")
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise ModelError(f"{place}: dtype: {shorten(dtype)} is not known")
    shape, offsets = _parse_sizes(entry.get("shape")), _parse_sizes(entry.get("data_offsets"))
    if shape is None:
        raise ModelError(f"{place}: shape: expected whole numbers of 0 or more, found {shorten(entry.get('shape'))}")
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:  # noqa: PLR2004  # begin and end
        raise ModelError(f"{place}: data_offsets: expected where its data begins and ends")
    elements, size = math.prod(shape), offsets[1] - offsets[0]
    if elements * _BITS[dtype] != size * 8:
        raise ModelError(f"{place}: {size} bytes cannot hold {elements} elements of {dtype}: is the file damaged?")
    return Tensor(name, shape, float(size), _count_parameters(name, dtype, elements))


def _count_parameters(name: str, dtype: str, elements: int) -> int | None:
    if _AUXILIARY.search(name):
        return 0
    return elements if dtype in _UNPACKED_TYPES else None


def _parse_sizes(values: object) -> tuple[int, ...] | None:
    """A list of whole numbers in the range of dimensions and offsets; None for anything else."""
    if not isinstance(values, list) or len(values) > _MAX_DIMENSIONS:
        return None
    sizes = tuple(value for value in values if type(value) is int and 0 <= value < _SIZE_LIMIT)
    return sizes if len(sizes) == len(values) else None


def _refuse_overlaps(path: Path, entries: Mapping[str, Any], data_bytes: int) -> None:
    previous_end = 0
    for begin, end, name in sorted((*entry["data_offsets"], name) for name, entry in entries.items()):
        if begin < previous_end:
            raise ModelError(f"{path}: {shorten(name)}: data_offsets: overlaps another tensor: is the file damaged?")
        if end > data_bytes:
            raise ModelError(f"{path}: {shorten(name)}: data_offsets: beyond the end of the file: is it complete?")
        previous_end = end


def _read_total_size(document: Mapping[str, Any], place: str) -> float | None:
    metadata = document.get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    if size is None:
        return None
    if isinstance(size, bool) or not isinstance(size, int | float) or not 0 < size < _SIZE_LIMIT:
        raise ModelError(f"{place}: metadata.total_size: expected a number of bytes, found {shorten(size)}")
    return float(size)


def _list_weight_files(folder: Path) -> tuple[str, ...]:
    """Names of the weight files, without a second copy of the weights for another program."""
    if find_file(folder, "model.safetensors") is not None:
        return ("model.safetensors",)
    names = sorted(islice(_list_names(folder), MAX_FILES + 1))
    if len(names) > MAX_FILES:
        raise ModelError(f"{folder}: more than the {MAX_FILES} .safetensors files that are read")
    weights = [name for name in names if not name.startswith(("adapter_", "consolidated"))]
    return tuple(weights or (name for name in names if name.startswith("consolidated")))


def _list_names(folder: Path) -> Iterator[str]:
    try:
        for entry in folder.iterdir():
            if entry.suffix == ".safetensors":
                yield entry.name
    except OSError as error:
        raise ModelError(f"{folder}: cannot be read: {error.strerror}") from error
