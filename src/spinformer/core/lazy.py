"""Packages whose modules are there without being imported one by one."""

from collections.abc import Callable, Iterable
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType


def modules_on_demand(
    package: str, path: Iterable[str]
) -> tuple[Callable[[str], ModuleType], Callable[[], list[str]]]:
    """The functions `__getattr__` and `__dir__` of a package: a module is imported when it is used.

    `package` and `path` are the package's `__name__` and `__path__`.

    >>> import spinformer
    >>> spinformer.hopfield.continuous.__name__
    'spinformer.hopfield.continuous'
    """
    names = sorted(module.name for module in iter_modules(path))

    def get(name: str) -> ModuleType:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}")

    return get, lambda: list(names)
