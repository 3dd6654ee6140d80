"""Keys of a JSON document of unknown shape, read with a type, and told by name where they are not what they must be."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from phasewatch.models.errors import ModelError, shorten

MAX_LAYERS: Final = 10_000
"""Layers that no model has: more are a damaged file."""

_MOST: Final = 100_000_000


@dataclass(frozen=True, slots=True)
class JsonFields:
    """The keys of one JSON object. A null is as good as a key that is not there.

    Attributes:
        values: the object.
        place: what stands before a key in messages, such as `config.json: text_config.`.
        defaults: values of keys that are left out.
    """

    values: Mapping[str, Any]
    place: str
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def get(self, key: str) -> Any:
        """The value as it is; None if it is left out."""
        value = self.values.get(key)
        return self.defaults.get(key) if value is None else value

    def error(self, key: str, message: str) -> ModelError:
        """What is wrong with a key, to be raised."""
        return ModelError(f"{self.place}{key}: {message}")

    def require_int(self, key: str, most: int = _MOST) -> int:
        """A number of things.

        Raises:
            ModelError: it is missing, no whole number, not above 0, or beyond `most`.
        """
        value = self.get_int(key, most)
        if value is None:
            raise self.error(key, "missing; expected a whole number above 0")
        return value

    def get_int(self, key: str, most: int = _MOST) -> int | None:
        """A number of things, None if it is left out.

        Raises:
            ModelError: it is no whole number, not above 0, or beyond `most`.
        """
        value = self.get(key)
        if value is None:
            return None
        return self._checked(key, value, 1, most)

    def get_count(self, key: str) -> int:
        """A number of things that may be 0, and is where it is left out.

        Raises:
            ModelError: it is no whole number, or negative.
        """
        value = self.get(key)
        return 0 if value is None else self._checked(key, value, 0, _MOST)

    def require_per_layer(self, key: str, layers: int) -> tuple[int, ...]:
        """A number of things of each layer, given once for all or layer by layer; 0 where a layer has none.

        Raises:
            ModelError: it is missing, or not such a number or list.
        """
        value = self.get(key)
        if not isinstance(value, list):
            return (self.require_int(key),) * layers
        if len(value) != layers:
            raise self.error(key, f"expected one entry for each of {layers} layers, found {len(value)}")
        return tuple(self._checked(f"{key}[{index}]", entry, 0, _MOST) for index, entry in enumerate(value))

    def get_bool(self, key: str, *, default: bool) -> bool:
        """True or false.

        Raises:
            ModelError: it is neither.
        """
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(key, f"expected true or false, found {shorten(value)}")
        return value

    def get_text(self, key: str) -> str | None:
        """A text, None if it is left out.

        Raises:
            ModelError: it is something else.
        """
        value = self.get(key)
        if value is not None and not isinstance(value, str):
            raise self.error(key, f"expected text, found {shorten(value)}")
        return value

    def get_list(self, key: str) -> list[Any]:
        """A list, empty if it is left out.

        Raises:
            ModelError: it is something else.
        """
        value = self.get(key)
        if value is not None and not isinstance(value, list):
            raise self.error(key, f"expected a list, found {shorten(value)}")
        return value or []

    def get_texts(self, key: str) -> list[str]:
        """A list of texts, empty if it is left out.

        Raises:
            ModelError: it is something else.
        """
        return list(self._of_type(key, str, "text"))

    def get_ints(self, key: str) -> list[int]:
        """A list of whole numbers, empty if it is left out.

        Raises:
            ModelError: it is something else.
        """
        return list(self._of_type(key, int, "whole numbers"))

    def get_section(self, key: str) -> "JsonFields | None":
        """The keys below a key, None if it is left out.

        Raises:
            ModelError: it is no object.
        """
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.error(key, f"expected an object, found {shorten(value)}")
        return JsonFields(value, f"{self.place}{key}.")

    def _of_type(self, key: str, kind: type, called: str) -> Iterator[Any]:
        for entry in self.get_list(key):
            if not isinstance(entry, kind) or isinstance(entry, bool):
                raise self.error(key, f"expected a list of {called}, found {shorten(entry)} in it")
            yield entry

    def _checked(self, key: str, value: object, least: int, most: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            expected = "a whole number above 0" if least else "a whole number of 0 or more"
            raise self.error(key, f"expected {expected}, found {shorten(value)}")
        if value > most:
            raise self.error(key, f"expected at most {most}, found {shorten(value)}")
        return value
