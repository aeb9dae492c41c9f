"""Sweeps over one's own function: each point once, whatever is killed, and the same in parallel."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest

from bookmaker.base import RunError
from bookmaker.sweeps.parameters import sweep_parameters
from spinformer.dmft import Context, Network, Regime, find_attractors

PROGRAM = """
import os, sys, time
from bookmaker.sweeps.parameters import sweep_parameters

def slow(a, b, log):
    with open(log, "a") as file:
        file.write(f"{a} {b}\\n")
    time.sleep(0.2)
    return {"sum": a + b, "row": [a, b]}

if __name__ == "__main__":
    folder, log, workers = sys.argv[1:]
    found = sweep_parameters(
        slow, over={"a": range(4), "b": [0.5, 1.5, 2.5]}, fixed={"log": log}, folder=folder,
        workers=int(workers),
    )
    print(found.array("sum").tolist())
"""
SUMS = [[a + b for b in (0.5, 1.5, 2.5)] for a in range(4)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_killed_sweep_goes_on_and_computes_nothing_twice(tmp_path, workers):
    if workers:
        pytest.importorskip("distributed")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    log = tmp_path / "log"
    folder = tmp_path / "kept"
    command = [sys.executable, str(program), str(folder), str(log), str(workers)]
    killed = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)  # fmt: skip
    for _ in range(1200):
        done = list(folder.glob("p*.json"))
        if len(done) >= 3:
            break
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    done = list(folder.glob("p*.json"))
    assert 3 <= len(done) < 12
    assert all("value" in json.loads(path.read_text()) for path in done)
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(again.stdout.splitlines()[-1]) == SUMS
    begun = Counter(log.read_text().splitlines())
    assert len(begun) == 12
    # What each process was at when it was killed was begun twice, nothing else.
    assert sum(begun.values()) <= 12 + max(1, 2 * workers)
    once = log.read_text()
    subprocess.run(command, capture_output=True, check=True)
    assert log.read_text() == once


def regime(beta, epsilon, network):
    start = Context(np.full((network.context, network.features), 0.1), 0)
    found = find_attractors(
        network, start, beta=beta, epsilon=epsilon, transient=500, kept=400, exponent_steps=200
    )
    return {"regime": found.regime, "exponent": found.exponents}


def test_a_phase_diagram_by_cells_grows_and_refuses_other_work(tmp_path):
    network = Network.segmented(3)
    calls = []

    def counted(beta, epsilon, network):
        calls.append((beta, epsilon))
        return regime(beta, epsilon, network)

    over = {"epsilon": [0.0, 0.02], "beta": np.array([0.3, 0.5, 1.0])}
    where = tmp_path / "cells"
    found = sweep_parameters(counted, over=over, fixed={"network": network}, folder=where)
    assert found.array("regime").shape == (2, 3)
    whole = find_attractors(
        network, Context(np.full((4, 3), 0.1), 0), beta=over["beta"],
        epsilon=np.array([[0.0], [0.02]]), transient=500, kept=400, exponent_steps=200,
    )  # fmt: skip
    assert (found.array("regime") == whole.regime).all()
    assert found.array("regime")[1, 0] == Regime.PERIODIC
    values = [result["exponent"]["value"] for result in found.results]
    np.testing.assert_array_equal(np.reshape(values, (2, 3, 2)), whole.exponents.value)
    more = over | {"beta": [0.3, 0.4, 0.5, 1.0]}
    sweep_parameters(counted, over=more, fixed={"network": network}, folder=where)
    assert len(calls) == 8
    for function, other in ((regime, network), (counted, network.with_parameters(gamma=3.0))):
        with pytest.raises(RunError, match="choose another folder"):
            sweep_parameters(function, over=over, fixed={"network": other}, folder=where)


def test_an_error_and_an_interrupt_keep_what_is_finished(tmp_path):
    seen = []

    def fragile(n):
        seen.append(n)
        if n == 2 and seen.count(2) < 3:
            raise KeyboardInterrupt if seen.count(2) == 1 else ZeroDivisionError("two")
        return n

    for error in (KeyboardInterrupt, ZeroDivisionError):
        with pytest.raises(error):
            sweep_parameters(fragile, over={"n": range(4)}, folder=tmp_path / "kept")
    found = sweep_parameters(fragile, over={"n": range(4)}, folder=tmp_path / "kept")
    assert found.array().tolist() == [0, 1, 2, 3]
    assert seen == [0, 1, 2, 2, 2, 3]


def test_what_does_not_fit_is_refused_by_name(tmp_path):
    def double(n, offset=0):
        return 2 * n + offset

    for arguments, word in (
        ({"function": len}, "function must be one that is written"),
        ({"over": {}}, "over must hold"),
        ({"over": {"n": []}}, "over must hold"),
        ({"over": {"n": [1]}, "fixed": {"n": 1}}, "over and fixed"),
        ({"over": {"n": [1j]}}, "points and results must be"),
        ({"fixed": {"offset": object()}}, "fixed must hold"),
        ({"function": lambda n: {n}}, "points and results must be"),
    ):
        given = {"function": double, "over": {"n": [1]}, "folder": tmp_path / word[:9]} | arguments
        with pytest.raises((TypeError, ValueError), match=word):
            sweep_parameters(given.pop("function"), **given)
