"""From where `make install` takes torch: prints an address, or nothing for PyPI's own.

On Linux PyPI's torch brings CUDA, some gigabytes. Where there is no NVIDIA driver the build for the
processor alone does the same work, if its address can be reached; who is behind a mirror of PyPI is
not kept waiting for it.
"""

import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

CPU = "https://download.pytorch.org/whl/cpu"
DRIVER = Path("/proc/driver/nvidia")
# Seconds for everything: a name that nobody answers for is asked for longer than any socket.
PATIENCE = 4.0


def needs_cuda() -> bool:
    """Whether this machine has an NVIDIA driver."""
    return DRIVER.exists() or shutil.which("nvidia-smi") is not None


def is_reached(address: str) -> bool:
    """Whether the list of torch's builds can be read from an address."""
    with urlopen(f"{address}/torch/", timeout=PATIENCE) as page:
        return b"torch-" in page.read(1_000_000)


def torch_index(reached: Callable[[str], bool] = is_reached) -> str:
    """Return the address of the CPU builds, "" where PyPI's is to be taken."""
    if sys.platform != "linux" or needs_cuda():
        return ""
    answers: list[bool] = []

    def ask() -> None:
        try:
            answers.append(reached(CPU))
        except (OSError, ValueError):
            answers.append(False)

    # A daemon: one that still waits does not keep the command from ending.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PATIENCE)
    return CPU if any(answers) else ""


if __name__ == "__main__":
    print(torch_index())
