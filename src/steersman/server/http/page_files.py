"""The files of the page, read once and served under a name of their content.

A browser keeps them without asking again, and after an update it never mixes old files with new ones.
"""

from __future__ import annotations

import gzip
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

from aiohttp import web

_FOLDER = Path(__file__).parents[1] / "page"
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FOREVER = "public, max-age=31536000, immutable"


class PageFiles:
    """The page and its files; `version` names their content."""

    def __init__(self, folder: Path) -> None:
        paths = sorted(path for path in folder.rglob("*") if path.suffix in _TYPES)
        contents = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        html = (folder / "index.html").read_text("utf-8")
        self.version = sha256(b"\0".join([html.encode(), *contents.values()])).hexdigest()[:12]
        self._files = {name: _File(_TYPES[Path(name).suffix], data, _FOREVER) for name, data in contents.items()}
        self._index = _File("text/html", self._link(html).encode(), "no-cache")

    def _link(self, html: str) -> str:
        """Name the files by the version, and load all scripts at once: imports would be found one after another."""
        scripts = [name for name in self._files if name.endswith(".js")]
        links = "".join(f'<link rel="modulepreload" href="page/{name}" />\n    ' for name in scripts)
        with_links = html.replace('<script type="module"', links + '<script type="module"')
        return with_links.replace('="page/', f'="page/{self.version}/')

    def show_index(self, request: web.Request) -> web.Response:
        """The page itself, which a browser asks for each time."""
        return self._index.respond(request)

    def show_file(self, request: web.Request) -> web.Response:
        """One of its files; one of another version is not there, since it would not fit to the others."""
        file = self._files.get(request.match_info["name"])
        if file is None or request.match_info["version"] != self.version:
            raise web.HTTPNotFound(text="There is no such file in this version of the page. Load the page again.")
        return file.respond(request)


class _File:
    def __init__(self, kind: str, data: bytes, keep: str) -> None:
        self._kind = kind
        self._data = data
        self._packed = gzip.compress(data, mtime=0)
        self._headers = {"Cache-Control": keep, "Vary": "Accept-Encoding"}

    def respond(self, request: web.Request) -> web.Response:
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers = {**self._headers, "Content-Encoding": "gzip"}
            return web.Response(body=self._packed, content_type=self._kind, charset="utf-8", headers=headers)
        return web.Response(body=self._data, content_type=self._kind, charset="utf-8", headers=self._headers)


@cache
def read_page() -> PageFiles:
    """The files of the page, read when they are first asked for."""
    return PageFiles(_FOLDER)
