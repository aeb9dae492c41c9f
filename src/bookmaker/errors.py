"""What can go wrong with a chapter, each said in a line; the command line prints it and exits."""

from dataclasses import dataclass


class BookError(ValueError):
    """The message is complete and says where; `exit_code` is what the command line returns."""

    exit_code = 2


class ParameterError(BookError):
    """A parameter that a chapter does not have or a value that it does not take."""


class RunError(BookError):
    """A chapter that did not run to its end: a cell failed, a kernel or a worker died."""

    exit_code = 1


@dataclass(frozen=True, order=True)
class Fault:
    """Something wrong in a file that a person edits; `line` counts from 1."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        """As compilers write it, so that editors jump there."""
        return f"{self.path}:{self.line}: {self.message}"


class SourceError(BookError):
    """A source that cannot be read; the message lists its faults, one in a line."""

    def __init__(self, faults: list[Fault]) -> None:
        """Keep `faults` for a caller that collects them."""
        super().__init__("\n".join(map(str, faults)))
        self.faults = faults
