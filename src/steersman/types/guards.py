"""The guard for callers without a type checker: it checks a value whose annotation already promises its type."""

from __future__ import annotations

from types import UnionType


def is_instance(value: object, kind: type | UnionType) -> bool:
    """`isinstance` for arguments of the public API, where a type checker would call the check unnecessary."""
    return isinstance(value, kind)
