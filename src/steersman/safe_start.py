"""Keeps the command from importing the modules of the working folder.

`python -m` puts the working folder first on `sys.path`, and so does an empty entry in PYTHONPATH, as in `:/my/modules`.
So a project that is looked at could bring its own `typing.py` and run. This module runs before all others, so it
imports only what Python has loaded already.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# What the packages that we use are called, those of our extras and those they may use included.
_PACKAGES = """
    _cffi_backend _yaml aiodns aiohappyeyeballs aiohttp aiosignal annotated_types anyio async_timeout attr attrs
    backports botocore brotli brotlicffi cachetools cchardet certifi cffi chardet charset_normalizer click cryptography
    dateutil dotenv email_validator exceptiongroup frozenlist genai_prices google h11 httpcore httpcore2 httpx httpx2
    httpx2_jsfetch httpx_sse idna jmespath jsonschema jsonschema_specifications jwt markdown_it mcp mcp_types mdurl
    msgspec multidict multipart nexusrpc numpy opentelemetry prompt_toolkit propcache psycopg psycopg_binary psycopg_c
    psycopg_pool pyasn1 pyasn1_modules pycares pycparser pydantic pydantic_core pydantic_settings pygments
    python_multipart referencing regex requests rich rpds rsa sitecustomize six sniffio sse_starlette starlette
    steersman temporalio tomli truststore typing_extensions typing_inspection tzdata urllib3 usercustomize uvicorn
    uvloop wcwidth winloop xllamacpp yaml yarl zstandard
"""
_UNUSED = frozenset(("antigravity", "idlelib", "lib2to3", "test", "this", "tkinter", "turtle", "turtledemo"))
_SUFFIXES = (".py", ".pyc", ".so", ".pyd")
_MOST = 5
# The folders of our Python by the paths that it knows. A link on the way may be in a workspace, where a command can
# replace it, so where they lead is looked up once, before there are tools.
_PREFIXES = {prefix: os.path.realpath(prefix) for prefix in (sys.prefix, sys.base_prefix)}


def refuse_foreign_modules() -> None:
    """Exit where the working folder is on `sys.path` and holds a module that would be imported instead of another.

    Otherwise take the folder off `sys.path`, and other relative folders of PYTHONPATH. Does nothing unless this process
    was started as `steersman` or as `python -m steersman`.
    """
    by_module = _is_command()
    if not by_module and os.path.basename(sys.argv[0]) != "steersman":
        return
    if by_module and not sys.flags.safe_path and _is_working_folder(sys.path[0]):
        _refuse_folder(
            os.getcwd(), "Run `steersman`, or `python -P -m steersman`, which import nothing from the folder."
        )
    if not sys.flags.ignore_environment and (given := os.environ.get("PYTHONPATH")):
        for entry in given.split(os.pathsep):
            if not os.path.isabs(entry):
                advice = "Take the empty or relative entry out of PYTHONPATH, which makes Python search the folder."
                _refuse_folder(os.path.abspath(entry), advice)


def _refuse_folder(folder: str, advice: str) -> None:
    """Exit if a folder holds a module called like one that we need; otherwise take it off `sys.path`."""
    # Where our own code comes from, which is the working folder of those who work on it.
    is_ours = os.path.realpath(os.path.dirname(os.path.dirname(__file__))) == os.path.realpath(folder)
    found = find_foreign_modules(folder)
    if is_ours:
        found = [name for name in found if name.partition(".")[0] != "steersman"]
    if found:
        shown = ", ".join(map(repr, found[:_MOST])) + (f" and {len(found) - _MOST} more" if len(found) > _MOST else "")
        print(
            f"steersman: The folder {folder!r} holds what Python would import instead of modules that steersman needs: "
            f"{shown}. So nothing was started. {advice}",
            file=sys.stderr,
        )
        sys.exit(2)
    if not is_ours:
        sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != folder]


def _is_command() -> bool:
    """Whether Python is about to run this package: `sys.argv[0]` is `-m` until the module to run has been found."""
    if sys.argv[:1] != ["-m"] or len(sys.orig_argv) <= len(sys.argv):
        return False
    word = sys.orig_argv[len(sys.orig_argv) - len(sys.argv)]
    return word == "steersman" or (word.startswith("-") and word.endswith("msteersman"))


def _is_working_folder(path: str) -> bool:
    try:
        return path == "" or os.path.samefile(path, os.getcwd())
    except OSError:
        return False


def resolve_prefix(path: str) -> str:
    """Resolve a path of our Python to where it was before tools could replace links on the way."""
    for prefix, real in _PREFIXES.items():
        if path == prefix or path.startswith(prefix.rstrip(os.sep) + os.sep):
            return real + path[len(prefix) :]
    return path


def _find_executable() -> str:
    """Find our executable, for child processes: in a virtual environment it is a link, which says what is installed."""
    path = sys.executable or ""
    return resolve_prefix(path) if sys.prefix != sys.base_prefix else path and os.path.realpath(path)


EXECUTABLE = _find_executable()
"""The executable of this Python with what is installed for it, by a path that tools cannot change."""


_FOLDERS = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_doubts: "list[Callable[[str], bool]]" = []


def doubt_folders(is_doubtful: "Callable[[str], bool]") -> None:
    """Have `clean_environment` leave out the folders of which this is true, as those where a command could write."""
    _doubts.append(is_doubtful)


def clean_environment(given: "Mapping[str, str]") -> dict[str, str]:
    """Clean the environment variables of a process that runs outside the sandbox.

    Of the folders in which it finds programs and libraries, relative ones and those where a command could write are
    left out; so is a variable with no other ones.
    """
    cleaned = dict(given)
    for name in _FOLDERS:
        folders = [
            folder
            for folder in cleaned.pop(name, "").split(os.pathsep)
            if os.path.isabs(folder) and not any(is_doubtful(folder) for is_doubtful in _doubts)
        ]
        if folders:
            cleaned[name] = os.pathsep.join(folders)
    return cleaned


def list_needed_modules() -> frozenset[str]:
    """List the names of the modules of Python and of the packages that we use."""
    return (sys.stdlib_module_names | frozenset(_PACKAGES.split())) - _UNUSED


def find_foreign_modules(folder: str) -> list[str]:
    """List the files and packages of a folder that are called like a module of Python or of a package that we use."""
    wanted = list_needed_modules()
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []  # Python could not list it either
    return [name for name in names if name.partition(".")[0] in wanted and _is_module(folder, name)]


def _is_module(folder: str, name: str) -> bool:
    """Whether Python imports it before a module of that name further down the path; not so a folder without a file."""
    if name.endswith(_SUFFIXES):
        return True
    try:
        inside = os.listdir(os.path.join(folder, name)) if "." not in name else []
    except OSError:
        return False
    return any(each.startswith("__init__.") and each.endswith(_SUFFIXES) for each in inside)
