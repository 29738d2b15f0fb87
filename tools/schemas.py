"""JSON schemas of Python types, as the console writes their values (console/web/rendering.py).

A class with fields is an object with all of them: a TypedDict, a dataclass, a named tuple, a body
of RocketMQ. Each is described once, by its name, and referred to from elsewhere.
"""

import types
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

Schema = dict[str, Any]
SIMPLE = {str: "string", bool: "boolean", int: "integer", float: "number", types.NoneType: "null"}
PREFIX = "#/components/schemas/"


class Schemas:
    """`named` are the schemas of classes by their names. ValueError for two classes of one name."""

    def __init__(self) -> None:
        self.named: dict[str, Schema] = {}
        self._kinds: dict[str, Any] = {}

    def of(self, kind: Any, given: Mapping[Any, Any] | None = None) -> Schema:
        """The schema of a type; `given` are the types that its type variables stand for."""
        kind = (given or {}).get(kind, kind) if isinstance(kind, TypeVar) else kind
        origin, parts = get_origin(kind), get_args(kind)
        if kind in SIMPLE:
            return {"type": SIMPLE[kind]}
        if kind is Any:
            return {}
        if origin in (Union, types.UnionType):
            return self._union([self.of(one, given) for one in parts])
        if origin in (list, set):
            return {"type": "array", "items": self.of(parts[0], given)}
        if origin is tuple:
            items = [self.of(one, given) for one in parts]
            size = len(items)
            return {"type": "array", "prefixItems": items, "minItems": size, "maxItems": size}
        if is_typeddict(origin or kind):  # at run time a dict, too
            return self._of_class(origin or kind, parts)
        if origin is not None and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(parts[1], given)}
        if isinstance(kind, type) and issubclass(kind, str):
            values = [one.value for one in kind] if issubclass(kind, Enum) else None
            return {"type": "string"} | ({"enum": values} if values else {})
        return self._of_class(kind, ())

    def _union(self, schemas: list[Schema]) -> Schema:
        if all(one.keys() == {"type"} for one in schemas):
            return {"type": [one["type"] for one in schemas]}
        return {"anyOf": schemas}

    def _of_class(self, kind: Any, parts: tuple[Any, ...]) -> Schema:
        name = "".join(one.__name__ for one in (*parts, kind))
        if self._kinds.setdefault(name, kind) is not kind:
            raise ValueError(f"{self._kinds[name]} and {kind} have one name; rename one of them")
        if name not in self.named:
            self.named[name] = {}  # a class may refer to itself
            given = dict(zip(getattr(kind, "__parameters__", ()), parts, strict=True))
            fields = {key: self.of(one, given) for key, one in get_type_hints(kind).items()}
            required = list(fields)
            self.named[name] = {"type": "object", "properties": fields, "required": required}
        return {"$ref": PREFIX + name}
