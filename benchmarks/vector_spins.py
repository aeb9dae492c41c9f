"""Free energy and magnetisation of vector spins, forward and backward, in single precision.

Run: python benchmarks/vector_spins.py [--repeats 9] [--plain-sites 128]

Medians of process time on one thread after a warm-up, all in one run, also as multiples of one
Cholesky factorisation of the same batch of matrices. Beside ours: the same saddle with the
generic implicit derivative, plain Newton with autograd through every step, and SciPy's Newton
(`trust-exact`, our exact gradient and Hessian in NumPy, double precision) a sample at a time,
which gives the forward pass only. Random couplings with lambda_max near 1.4 and softmax
couplings of the same size; beta = 1, fields of unit variance.
"""

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import scipy
import torch
from scipy.optimize import minimize
from torch import Tensor

from spinformer.core.implicit import implicit_root
from spinformer.spins.large_d import (
    action_gradient,
    field_correlation,
    field_source,
    inverse_logdet,
)
from spinformer.spins.solvers import solve_saddle_point

SIZES = ((32, 128, 8), (128, 64, 8), (256, 64, 8))


def systems(sites: int, dimension: int, batch: int, kind: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(batch, sites, sites, generator=generator)
    couplings = torch.softmax(noise, -1) * 1.4 if kind == "softmax" else noise / sites**0.5
    fields = torch.randn(batch, sites, dimension, generator=generator)
    return couplings.requires_grad_(), fields.requires_grad_()


def loss(energy: Tensor, mean: Tensor) -> Tensor:
    return energy.sum() + mean.square().sum()


def ours(couplings: Tensor, fields: Tensor) -> Tensor:
    result = solve_saddle_point(couplings, fields=fields, beta=1.0)
    return loss(result.free_energy, result.magnetization)


def with_generic_derivative(couplings: Tensor, fields: Tensor) -> Tensor:
    """The same saddle, its derivative by a dense Jacobian a backward pass at a time."""
    with torch.no_grad():
        t = solve_saddle_point(couplings, fields=fields, beta=1.0).saddle.value

    def slope(t: Tensor, couplings: Tensor, fields: Tensor) -> Tensor:
        source = field_source(fields / fields.shape[-1] ** 0.5)
        inverse, _ = inverse_logdet(torch.diag_embed(t) - (couplings + couplings.mT) / 2)
        return action_gradient(
            inverse, field_correlation(inverse, source), t.new_ones(t.shape[:-1])
        )[0]

    t = implicit_root(slope, t, couplings, fields)
    return _observe(t, couplings, fields)


def unrolled(couplings: Tensor, fields: Tensor, tolerance: float = 1e-5) -> Tensor:
    """Plain damped Newton, damped for the batch as a whole, kept in the graph step by step."""
    j = (couplings + couplings.mT) / 2
    h = fields / fields.shape[-1] ** 0.5
    t = j.detach().abs().sum(-1).amax(-1, keepdim=True) + 1 + h.detach().norm(dim=-1)
    for _ in range(60):
        v = torch.linalg.inv(torch.diag_embed(t) - j)
        p = v @ h @ h.mT @ v
        gradient = 1 - v.diagonal(dim1=-2, dim2=-1) / 2 - p.diagonal(dim1=-2, dim2=-1) / 4
        if float(gradient.detach().abs().max()) < tolerance:
            break
        step = torch.linalg.solve(0.5 * v * (v + p), gradient[..., None])[..., 0]
        scale = 1.0
        while bool(
            torch.linalg.cholesky_ex(torch.diag_embed(t - scale * step).detach() - j.detach())[
                1
            ].any()
        ):
            scale /= 2
        t = t - scale * step
    return _observe(t, couplings, fields)


def _observe(t: Tensor, couplings: Tensor, fields: Tensor) -> Tensor:
    sites, dimension = fields.shape[-2:]
    v = torch.diag_embed(t) - (couplings + couplings.mT) / 2
    half = torch.linalg.solve(v, fields) / 2
    phi = t.sum(-1) - torch.linalg.slogdet(v)[1] / 2 + (half * fields).sum((-1, -2)) / 2 / dimension
    return loss(-dimension * (phi - sites / 2 * (1 + np.log(2))), half)


def scipy_forward(couplings: Tensor, fields: Tensor) -> Tensor:
    total = 0.0
    for j, h in zip(
        couplings.detach().double().numpy(), fields.detach().double().numpy(), strict=True
    ):
        j, sites, dimension = (j + j.T) / 2, *h.shape
        gram = h @ h.T / dimension

        def parts(t: np.ndarray, j=j, gram=gram) -> tuple[float, np.ndarray, np.ndarray]:
            matrix = np.diag(t) - j
            try:
                factor = np.linalg.cholesky(matrix)
            except np.linalg.LinAlgError:
                return np.inf, np.zeros_like(t), np.eye(t.size)
            v = np.linalg.inv(matrix)
            p = v @ gram @ v
            value = t.sum() - np.log(np.diag(factor)).sum() + (gram * v).sum() / 4
            return value, 1 - np.diag(v) / 2 - np.diag(p) / 4, 0.5 * v * (v + p)

        start = np.full(sites, np.abs(j).sum(1).max() + 1)
        optimum = minimize(
            lambda t: parts(t)[0],
            start,
            jac=lambda t: parts(t)[1],
            hess=lambda t: parts(t)[2],
            method="trust-exact",
            options={"gtol": 1e-5},
        )
        mean = np.linalg.solve(np.diag(optimum.x) - j, h) / 2
        total += -dimension * (optimum.fun - sites / 2 * (1 + np.log(2))) + (mean**2).sum()
    return torch.tensor(total)


def clock(works: dict[str, tuple[Callable[[], object], int]]) -> dict[str, float]:
    """Median milliseconds of each work, one after the other in every round; repeats as given."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for work, _ in works.values():
        work()
    for turn in range(max(repeats for _, repeats in works.values())):
        for name, (work, repeats) in works.items():
            if turn < repeats:
                start = time.process_time()
                work()
                times[name].append(time.process_time() - start)
    return {name: 1e3 * statistics.median(measured) for name, measured in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--plain-sites", type=int, default=128, help="largest N for the references")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, one thread; Python "
        f"{platform.python_version()}, torch {torch.__version__}, SciPy {scipy.__version__}"
    )
    for sites, dimension, batch in SIZES:
        for kind in ("glass", "softmax"):
            couplings, fields = systems(sites, dimension, batch, kind)
            with torch.no_grad():
                saddle = solve_saddle_point(couplings, fields=fields, beta=1.0).saddle
                matrix = torch.diag_embed(saddle.value) - (couplings + couplings.mT) / 2

            def unit(m: Tensor = matrix) -> Tensor:
                with torch.no_grad():
                    return torch.linalg.cholesky(m)

            print(
                f"N = {sites}, D = {dimension}, batch {batch}, {kind}: "
                f"at most {int(saddle.steps.max())} steps, "
                f"all converged: {bool(saddle.converged.all())}"
            )

            def both(method: Callable[[Tensor, Tensor], Tensor], j=couplings, h=fields) -> Tensor:
                j.grad = h.grad = None
                value = method(j, h)
                value.backward()
                return value

            methods: dict[str, Callable[[], Tensor]] = {"spinformer": lambda b=both: b(ours)}
            if sites <= options.plain_sites:
                methods |= {
                    "generic implicit derivative": lambda b=both: b(with_generic_derivative),
                    "unrolled Newton, autograd": lambda b=both: b(unrolled),
                    "SciPy trust-exact, forward": lambda j=couplings, h=fields: scipy_forward(j, h),
                }
            milliseconds = clock(
                {"one Cholesky": (unit, options.repeats)}
                | {
                    name: (work, options.repeats if name == "spinformer" else 3)
                    for name, work in methods.items()
                }
            )
            for name, work in methods.items():
                print(
                    f"  {name:28s} {milliseconds[name]:9.1f} ms  "
                    f"{milliseconds[name] / milliseconds['one Cholesky']:8.0f} Cholesky  "
                    f"value {float(work().detach()):.2f}"
                )


if __name__ == "__main__":
    main()
