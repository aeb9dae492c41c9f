"""Packages whose modules are there without being imported one by one."""

from collections.abc import Callable, Iterable
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType


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
    names = sorted(module.name for module in iter_modules(path))

    def get(name: str) -> ModuleType:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}")

    return get, lambda: list(names)
