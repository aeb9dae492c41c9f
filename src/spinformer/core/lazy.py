"""Lazy import: a package that gives its modules, and names from them, when they are first used.

This is the convention of Scientific Python's `lazy_loader` (SPEC 1): the names that a package
exports stand once, as imports in its stub file `__init__.pyi`, where type checkers and editors read
them, too. That library gives a module only if the stub lists it, and then `import *` imports it.
"""

import ast
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any


def modules_on_demand(
    package: str, path: Iterable[str]
) -> tuple[Callable[[str], ModuleType], Callable[[], list[str]]]:
    """Lazy import of the modules of a package.

    Parameters
    ----------
    package : str
        Name of the package, its `__name__`.
    path : iterable of str
        Folders of the package, its `__path__`.

    Returns
    -------
    tuple of two callables
        The functions `__getattr__` and `__dir__` of the package. A module is imported when it is
        first used.

    Raises
    ------
    AttributeError
        From the first function, for a name that is no module of the package.

    Examples
    --------
    >>> import spinformer
    >>> spinformer.hopfield.continuous.__name__
    'spinformer.hopfield.continuous'
    """
    get, listed, _ = names_on_demand(package, path)
    return get, listed


def names_on_demand(
    package: str, path: Iterable[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Lazy import of the modules of a package and of the names that its stub file imports.

    Parameters
    ----------
    package : str
        Name of the package, its `__name__`.
    path : iterable of str
        Folders of the package, its `__path__`.

    Returns
    -------
    tuple of two callables and a list
        The functions `__getattr__` and `__dir__` of the package, and its `__all__`, the exported
        names. A module is imported when it, or a name from it, is first used.

    Raises
    ------
    AttributeError
        From the first function, for a name that is neither exported nor a module of the package.

    Examples
    --------
    >>> from spinformer.dmft import lyapunov_spectrum
    >>> lyapunov_spectrum.__module__
    'spinformer.dmft.lyapunov'
    """
    modules = sorted(module.name for module in iter_modules(path))
    homes: dict[str, str] = {}
    for folder in path:
        stub = Path(folder) / "__init__.pyi"
        if stub.is_file():
            for node in ast.parse(stub.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ImportFrom) and node.module:
                    homes |= {alias.name: node.module for alias in node.names}

    def get(name: str) -> Any:
        if name in homes:
            return getattr(import_module(homes[name]), name)
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}")

    return get, lambda: sorted({*modules, *homes}), sorted(homes)
