"""Tensors of a model from the headers of its safetensors files, and the folder's index of them.

A file begins with 8 bytes, the length of its header as a little-endian number; then comes the header, a JSON object of
`{"dtype", "shape", "data_offsets"}` by name, then the data (https://huggingface.co/docs/safetensors). Only headers are
read here, and nothing in one is believed before it agrees with the size of the file.
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

LONGEST_HEADER: Final = 100_000_000
"""Bytes of the longest header that the format allows, and of all headers of a folder together."""

MOST_TENSORS: Final = 1_000_000
"""Of a folder. Mixtures of experts that keep each one apart have some ten thousand."""

MOST_FILES: Final = 1000

_INDEX: Final = "model.safetensors.index.json"
_LENGTH_BYTES: Final = 8
_MOST_DIMENSIONS: Final = 32
_BEYOND_SIZE: Final = 2**63

_BITS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("C64", "F64", "I64", "U64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("BF16", "F16", "I16", "U16"), 16),
    **dict.fromkeys(("BOOL", "F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2", "F8_E5M2FNUZ", "F8_E8M0", "I8", "U8"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
"""Bits of an element by the name of its data type."""

_ONE_EACH: Final = frozenset(
    {"F64", "F32", "BF16", "F16", "F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2", "F8_E5M2FNUZ", "F4", "I8"}
)
"""Data types of which an element is a parameter. In the others several may be packed."""

_NO_PARAMETERS: Final = re.compile(
    r"(?:scales?|scale_inv|scale_\d|zeros|zero_points?|g_idx|weight_shape|absmax|quant_map|quant_state\w*|SCB)$"
    r"|\.quant_state\.|\.absmax$|\.nested_\w+$"
)
"""Tensors that say how others are to be read."""


@dataclass(frozen=True, slots=True)
class WeightIndex:
    """The index of a folder whose weights are in several files."""

    total_size: float | None
    files: tuple[str, ...]


def read_index(folder: Path) -> WeightIndex | None:
    """The index of a folder; None if it has none.

    Raises:
        ModelError: it cannot be read, or names anything but files beside it.
    """
    path = find_file(folder, _INDEX)
    if path is None:
        return None
    place = str(folder / _INDEX)
    document = read_json_file(path, LONGEST_HEADER)
    names = document.get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ModelError(f"{place}: weight_map: expected the file of each tensor")
    files = set()
    for name in names.values():
        if not isinstance(name, str) or not is_plain_name(name) or not name.endswith(".safetensors"):
            raise ModelError(f"{place}: weight_map: expected the names of files beside it, found {shorten(name)}")
        files.add(name)
    if len(files) > MOST_FILES:
        raise ModelError(f"{place}: weight_map: {len(files)} files are more than the {MOST_FILES} that are read")
    return WeightIndex(_total_size(document, place), tuple(sorted(files)))


def read_tensors(folder: Path, index: WeightIndex | None) -> tuple[Tensor, ...] | None:
    """The tensors of a folder; None if not all of its weights are there.

    Raises:
        ModelError: a file cannot be read or is damaged.
    """
    names = index.files if index is not None else _weight_files(folder)
    files = {name: find_file(folder, name) for name in names}
    if not files or None in files.values():
        return None
    tensors: dict[str, Tensor] = {}
    length = 0
    for name, path in files.items():
        text, data_bytes = _header_text(path or folder / name)
        length += len(text)
        if length > LONGEST_HEADER:
            raise ModelError(f"{folder}: headers of more than {LONGEST_HEADER // 10**6} MB in all are not read")
        for tensor in _tensors(path or folder / name, text, data_bytes):
            if tensor.name in tensors:
                raise ModelError(f"{folder / name}: {shorten(tensor.name)} is in another file as well")
            tensors[tensor.name] = tensor
        if len(tensors) > MOST_TENSORS:
            raise ModelError(f"{folder}: more than {MOST_TENSORS} tensors are not read")
    if not any(tensor.size for tensor in tensors.values()):
        raise ModelError(f"{folder}: the weight files hold nothing: are they complete?")
    return tuple(tensors.values())


def read_header(path: Path) -> tuple[Tensor, ...]:
    """The tensors of one file.

    Raises:
        ModelError: it cannot be read, or contradicts itself or its size.
    """
    return _tensors(path, *_header_text(path))


def _header_text(path: Path) -> tuple[bytes, int]:
    """The header of a file, and how many bytes of data follow it."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if length > LONGEST_HEADER:
                raise ModelError(f"{path}: a header of {length} bytes is longer than the format allows")
            if length > size - _LENGTH_BYTES:
                raise ModelError(f"{path}: too short for its header of {length} bytes: is the file complete?")
            return file.read(length), size - _LENGTH_BYTES - length
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error


def _tensors(path: Path, text: bytes, data_bytes: int) -> tuple[Tensor, ...]:
    entries = {name: entry for name, entry in parse_json_object(text, str(path)).items() if name != "__metadata__"}
    tensors = [_tensor(path, name, entry) for name, entry in entries.items()]
    _refuse_overlaps(path, entries, data_bytes)
    return tuple(tensors)


def _tensor(path: Path, name: str, entry: object) -> Tensor:
    place = f"{path}: {shorten(name)}"
    if not isinstance(entry, dict):
        raise ModelError(f"{place}: expected dtype, shape and data_offsets")
    dtype = entry.get("dtype")
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise ModelError(f"{place}: dtype: {shorten(dtype)} is not known")
    shape, offsets = _sizes(entry.get("shape")), _sizes(entry.get("data_offsets"))
    if shape is None:
        raise ModelError(f"{place}: shape: expected whole numbers of 0 or more, found {shorten(entry.get('shape'))}")
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:  # noqa: PLR2004  # begin and end
        raise ModelError(f"{place}: data_offsets: expected where its data begins and ends")
    elements, size = math.prod(shape), offsets[1] - offsets[0]
    if elements * _BITS[dtype] != size * 8:
        raise ModelError(f"{place}: {size} bytes cannot hold {elements} elements of {dtype}: is the file damaged?")
    return Tensor(name, shape, float(size), _parameters(name, dtype, elements))


def _parameters(name: str, dtype: str, elements: int) -> int | None:
    if _NO_PARAMETERS.search(name):
        return 0
    return elements if dtype in _ONE_EACH else None


def _sizes(values: object) -> tuple[int, ...] | None:
    """Whole numbers of 0 or more, as few and as small as dimensions and offsets are; None for anything else."""
    if not isinstance(values, list) or len(values) > _MOST_DIMENSIONS:
        return None
    sizes = tuple(value for value in values if type(value) is int and 0 <= value < _BEYOND_SIZE)
    return sizes if len(sizes) == len(values) else None


def _refuse_overlaps(path: Path, entries: Mapping[str, Any], data_bytes: int) -> None:
    before = 0
    for begin, end, name in sorted((*entry["data_offsets"], name) for name, entry in entries.items()):
        if begin < before:
            raise ModelError(f"{path}: {shorten(name)}: data_offsets: overlaps another tensor: is the file damaged?")
        if end > data_bytes:
            raise ModelError(f"{path}: {shorten(name)}: data_offsets: beyond the end of the file: is it complete?")
        before = end


def _total_size(document: Mapping[str, Any], place: str) -> float | None:
    metadata = document.get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    if size is None:
        return None
    if isinstance(size, bool) or not isinstance(size, int | float) or not 0 < size < _BEYOND_SIZE:
        raise ModelError(f"{place}: metadata.total_size: expected a number of bytes, found {shorten(size)}")
    return float(size)


def _weight_files(folder: Path) -> tuple[str, ...]:
    """Names of the files that hold weights. Some folders have them twice, once for another program."""
    if find_file(folder, "model.safetensors") is not None:
        return ("model.safetensors",)
    found = sorted(islice(_names(folder), MOST_FILES + 1))
    if len(found) > MOST_FILES:
        raise ModelError(f"{folder}: more than the {MOST_FILES} .safetensors files that are read")
    weights = [name for name in found if not name.startswith(("adapter_", "consolidated"))]
    return tuple(weights or (name for name in found if name.startswith("consolidated")))


def _names(folder: Path) -> Iterator[str]:
    try:
        for entry in folder.iterdir():
            if entry.suffix == ".safetensors":
                yield entry.name
    except OSError as error:
        raise ModelError(f"{folder}: cannot be read: {error.strerror}") from error
