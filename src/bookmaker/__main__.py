"""The way in: nothing here needs a library, so that a missing one, or Ctrl-C, is told in a line."""

import os
import signal
import sys

from bookmaker.base import missing_library


def main() -> None:
    """Run the command line; what is done while its libraries are imported can be left at once."""
    # Not where a shell lets a process in the background ignore it.
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heard:
        signal.signal(signal.SIGINT, _leave)
    try:
        from bookmaker.command import main as command
    except ModuleNotFoundError as error:
        sys.exit(f"Error: {missing_library(error)}")
    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        command()
    finally:
        # One Ctrl-C is enough: a second would interrupt what is closed at exit.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _leave(*_: object) -> None:
    # An exception would come out of whatever library is being imported as that library's own.
    os.write(2, b"stopped: nothing was written\n")
    os._exit(130)


if __name__ == "__main__":
    main()
