"""Modules of the user's: run before anything else, and known by what they contain."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


def import_all(given: Sequence[str] | None) -> None:
    """Run files and import modules, in order."""
    for one in given or ():
        if one.endswith(".py"):
            _run(Path(one))
            continue
        try:
            importlib.import_module(one)
        except ModuleNotFoundError as error:
            if error.name and one.startswith(error.name):
                text = f"--import: {one!r} is no file and no module ({error})"
                raise ValueError(text) from None
            raise _trouble(one, error) from error
        except Exception as error:
            raise _trouble(one, error) from error


def code_of(env: str, given: Sequence[str] | None) -> dict[str, str]:
    """SHA-256 of the user's own modules: those he named, what makes his id, and what lies beside.

    A run that stopped early goes on with episodes that this code played, so no other code may.
    """
    named = {Path(one).stem if one.endswith(".py") else one for one in given or ()}
    module, _, name = env.removeprefix("gym:").rpartition(":")
    named |= {module} if _imported(module) else set()
    maker = _maker(name) if env.startswith("gym:") else ""
    files = {one: file for one in (*named, maker) if (file := _file_of(one))}
    homes = {file.parent for file in files.values() if not _installed(file)}
    beside = {one: file for one in list(sys.modules) if (file := _file_of(one))}
    files |= {one: file for one, file in beside.items() if file.parent in homes}
    own = {one: file for one, file in files.items() if one in named or not _installed(file)}
    return {one: hashlib.sha256(own[one].read_bytes()).hexdigest() for one in sorted(own)}


def _maker(name: str) -> str:
    """The module that Gymnasium makes an id by; none if it is no user's."""
    import gymnasium

    spec = gymnasium.registry.get(name)
    entry = None if spec is None else spec.entry_point
    module = entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")
    ours = module.partition(".")[0] in ("gymnasium", "tasid")
    return module if not ours and _imported(module) else ""


def _imported(module: str) -> bool:
    """Import what is going to be imported anyway; what is wrong with it is said there."""
    with suppress(Exception):
        importlib.import_module(module)
        return True
    return False


def _file_of(module: str) -> Path | None:
    found = getattr(sys.modules.get(module), "__file__", None)
    return Path(found) if found and Path(found).is_file() else None


def _installed(file: Path) -> bool:
    """Is it a library rather than the user's own?"""
    libraries = {"site-packages", "dist-packages"} & set(file.parts)
    return bool(libraries) or file.is_relative_to(sysconfig.get_path("stdlib"))


def _run(file: Path) -> None:
    if not file.is_file():
        raise ValueError(f"--import: {file}: no such file")
    name, folder = file.stem, str(file.resolve().parent)
    if name in sys.modules:
        if getattr(sys.modules[name], "__file__", None) == str(file.resolve()):
            return
        raise ValueError(f"--import: {file}: there is a module {name!r} already; rename the file")
    spec = importlib.util.spec_from_file_location(name, file.resolve())
    if spec is None or spec.loader is None:
        raise ValueError(f"--import: {file}: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    # Worker processes find it by its name; last, so that it hides nothing.
    sys.path.append(folder)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        sys.path.remove(folder)
        if isinstance(error, Exception):
            raise _trouble(file, error) from error
        raise


def _trouble(given: str | Path, error: Exception) -> ValueError:
    from tasid.maps.size import raised

    return ValueError(f"--import: {given}: {raised(error)}")
