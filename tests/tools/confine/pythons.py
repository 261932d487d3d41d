"""Python environments for tests of what is done in their folders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def make_python(folder: Path) -> str:
    """Make a Python environment that has what this one has, and a module `installed`; its executable."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "these.pth").write_text("\n".join(path for path in sys.path if os.path.isdir(path)))
    (packages / "installed.py").write_text("print('installed')")
    return str(folder / "bin" / "python")
