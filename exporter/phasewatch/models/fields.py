"""Typed access to the keys of a JSON document of unknown shape; a wrong type is an error that names the key."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from phasewatch.models.errors import ModelError, shorten

MAX_LAYERS: Final = 10_000
"""Upper bound of the layers of a model; more mean that the file is damaged."""

_MAX: Final = 100_000_000
"""Upper bound of any other number of things."""


@dataclass(frozen=True, slots=True)
class JsonFields:
    """The keys of one JSON object. A null counts as a missing key.

    Attributes:
        values: the object.
        place: prefix of a key in messages, such as `config.json: text_config.`.
        defaults: values of missing keys.
    """

    values: Mapping[str, Any]
    place: str
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def get(self, key: str) -> Any:
        """The value of any type, or its default; None if it has neither."""
        value = self.values.get(key)
        return self.defaults.get(key) if value is None else value

    def error(self, key: str, message: str) -> ModelError:
        """An error about a key, to be raised."""
        return ModelError(f"{self.place}{key}: {message}")

    def require_int(self, key: str, maximum: int = _MAX) -> int:
        """A whole number above 0.

        Raises:
            ModelError: it is missing, not a whole number, not above 0, or above `maximum`.
        """
        value = self.get_int(key, maximum)
        if value is None:
            raise self.error(key, "missing; expected a whole number above 0")
        return value

    def get_int(self, key: str, maximum: int = _MAX) -> int | None:
        """A whole number above 0; None if it is missing.

        Raises:
            ModelError: it is not a whole number, not above 0, or above `maximum`.
        """
        value = self.get(key)
        if value is None:
            return None
        return self._check_int(key, value, 1, maximum)

    def get_count(self, key: str) -> int:
        """A whole number of 0 or more; 0 if it is missing.

        Raises:
            ModelError: it is not a whole number, or negative.
        """
        value = self.get(key)
        return 0 if value is None else self._check_int(key, value, 0, _MAX)

    def require_per_layer(self, key: str, layers: int) -> tuple[int, ...]:
        """A whole number for each layer, from one number for all layers or a list with one for each.

        Raises:
            ModelError: it is missing, or neither a number above 0 nor a list of numbers of 0 or more.
        """
        value = self.get(key)
        if not isinstance(value, list):
            return (self.require_int(key),) * layers
        if len(value) != layers:
            raise self.error(key, f"expected one entry for each of {layers} layers, found {len(value)}")
        return tuple(self._check_int(f"{key}[{index}]", entry, 0, _MAX) for index, entry in enumerate(value))

    def get_bool(self, key: str, *, default: bool) -> bool:
        """A boolean; `default` if it is missing.

        Raises:
            ModelError: it is not a boolean.
        """
        value: bool | None = self._get_instance(key, bool, "true or false")
        return default if value is None else value

    def get_text(self, key: str) -> str | None:
        """A string; None if it is missing.

        Raises:
            ModelError: it is not a string.
        """
        text: str | None = self._get_instance(key, str, "text")
        return text

    def get_list(self, key: str) -> list[Any]:
        """A list; empty if it is missing.

        Raises:
            ModelError: it is not a list.
        """
        return self._get_instance(key, list, "a list") or []

    def get_texts(self, key: str) -> list[str]:
        """A list of strings; empty if it is missing.

        Raises:
            ModelError: it is not a list of strings.
        """
        return list(self._get_list_of(key, str, "text"))

    def get_ints(self, key: str) -> list[int]:
        """A list of whole numbers; empty if it is missing.

        Raises:
            ModelError: it is not a list of whole numbers.
        """
        return list(self._get_list_of(key, int, "whole numbers"))

    def get_section(self, key: str) -> "JsonFields | None":
        """A nested object; None if it is missing.

        Raises:
            ModelError: it is not an object.
        """
        value = self._get_instance(key, Mapping, "an object")
        return None if value is None else JsonFields(value, f"{self.place}{key}.")

    def _get_instance(self, key: str, value_type: type, type_name: str) -> Any:
        value = self.get(key)
        if value is not None and not isinstance(value, value_type):
            raise self.error(key, f"expected {type_name}, found {shorten(value)}")
        return value

    def _get_list_of(self, key: str, entry_type: type, type_name: str) -> Iterator[Any]:
        for entry in self.get_list(key):
            if not isinstance(entry, entry_type) or isinstance(entry, bool):
                raise self.error(key, f"expected a list of {type_name}, found {shorten(entry)} in it")
            yield entry

    def _check_int(self, key: str, value: object, minimum: int, maximum: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            expected = "a whole number above 0" if minimum else "a whole number of 0 or more"
            raise self.error(key, f"expected {expected}, found {shorten(value)}")
        if value > maximum:
            raise self.error(key, f"expected at most {maximum}, found {shorten(value)}")
        return value
