"""Small clones to try the launcher in, and the launcher of a clone as a module."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import cffi

TOP = Path(__file__).parents[2]

# A build backend that needs no network. The package that it installs is a command that tells how it was called.
BACKEND = """
import zipfile
from pathlib import Path

COMMAND = "import sys\\ndef main():\\n    print('called with', sys.argv[1:])\\n    return 7\\n"
FILES = {
    "spinney_tools/cli.py": COMMAND,
    "cffi.pth": SITE,
    "spinney-0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: spinney\\nVersion: 0\\nProvides-Extra: test\\n"
    "Provides-Extra: pipeline\\nRequires-Dist: tiny-one; extra == 'pipeline'\\n",
    "spinney-0.dist-info/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    "spinney-0.dist-info/entry_points.txt": "[console_scripts]\\nspinney = spinney_tools.cli:main\\n",
}

def build_editable(folder, config_settings=None, metadata_directory=None):
    name = "spinney-0-py3-none-any.whl"
    with zipfile.ZipFile(Path(folder) / name, "w") as wheel:
        for file, text in FILES.items():
            wheel.writestr(file, text)
        wheel.writestr("spinney-0.dist-info/RECORD", "".join(f"{file},,\\n" for file in FILES))
    return name
"""
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def make_clone(top: Path) -> Path:
    """The real launcher and core build, over a package and a C core of a few lines."""
    for folder in ("native/include", "native/src", "native/python/spinney", "tests/core", "tests/mote"):
        (top / folder).mkdir(parents=True)
    shutil.copy(TOP / "spinney", top)
    shutil.copy(TOP / "native/build_core.py", top / "native")
    (top / "tools").symlink_to(TOP / "tools")
    (top / "pyproject.toml").write_text(PYPROJECT)
    (top / "backend.py").write_text(f"SITE = {str(Path(cffi.__file__).parents[1])!r}\n{BACKEND}")
    (top / "native/hatch_build.py").write_text("")
    (top / "native/include/spinney.h").write_text("// one function\nint spinney_one(void);\n")
    (top / "native/src/one.c").write_text('#include "spinney.h"\nint spinney_one(void) { return 1; }\n')
    (top / "tests/core/test_one.py").write_text("")
    return top


def launcher_of(top: Path) -> ModuleType:
    loader = SourceFileLoader("launcher", str(top / "spinney"))
    spec = importlib.util.spec_from_loader("launcher", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    kept = [*sys.path], sys.dont_write_bytecode
    loader.exec_module(module)
    sys.path[:], sys.dont_write_bytecode = kept
    return module
