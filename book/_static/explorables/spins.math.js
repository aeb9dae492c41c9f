// Three Ising spins, exactly and by three approximate free energies: spinformer.spins.ising, with
// K = βJ and θ = βh. Plain numbers, nothing of the page.
"use strict";
globalThis.spinformer = globalThis.spinformer ?? {};
spinformer.spins = (() => {
  const SITES = [0, 1, 2];
  const ROWS = [0, 0, 1], COLUMNS = [1, 2, 2];

  // Couplings J₁₂, J₁₃, J₂₃ as a symmetric matrix times β.
  function matrix(couplings, beta) {
    const k = SITES.map(() => [0, 0, 0]);
    couplings.forEach((j, pair) => {
      k[ROWS[pair]][COLUMNS[pair]] = k[COLUMNS[pair]][ROWS[pair]] = beta * j;
    });
    return k;
  }

  // Magnetizations and ln Z by the sum over the eight states.
  function exact(couplings, fields, beta) {
    const weights = [], states = [];
    for (let code = 0; code < 8; code += 1) {
      const s = SITES.map((i) => ((code >> i) & 1 ? 1 : -1));
      let score = 0;
      couplings.forEach((j, pair) => { score += beta * j * s[ROWS[pair]] * s[COLUMNS[pair]]; });
      SITES.forEach((i) => { score += beta * fields[i] * s[i]; });
      states.push(s); weights.push(score);
    }
    const largest = Math.max(...weights);
    const total = weights.reduce((sum, w) => sum + Math.exp(w - largest), 0);
    const m = SITES.map((i) =>
      states.reduce((sum, s, n) => sum + s[i] * Math.exp(weights[n] - largest), 0) / total);
    return {m, logZ: largest + Math.log(total)};
  }

  // Determinant and inverse of a 3 × 3 matrix.
  function inverse(a) {
    const minor = (i, j) => {
      const [r, s] = SITES.filter((n) => n !== i), [c, d] = SITES.filter((n) => n !== j);
      return (a[r][c] * a[s][d] - a[r][d] * a[s][c]) * ((i + j) % 2 ? -1 : 1);
    };
    const det = SITES.reduce((sum, j) => sum + a[0][j] * minor(0, j), 0);
    return {det, inverse: SITES.map((i) => SITES.map((j) => minor(j, i) / det))};
  }

  // Is the symmetric 3 × 3 matrix positive definite?
  function positive(a) {
    return a[0][0] > 0 && a[0][0] * a[1][1] - a[0][1] ** 2 > 0 && inverse(a).det > 0;
  }

  // λ with [(diag λ − S)⁻¹]_ii = 1, by Newton's method inside the positive matrices.
  function unitDiagonal(s) {
    let lambda = SITES.map((i) => 1 + s[i].reduce((sum, x) => sum + Math.abs(x), 0));
    const shifted = (l) => SITES.map((i) => SITES.map((j) => (i === j ? l[i] : 0) - s[i][j]));
    for (let n = 0; n < 60; n += 1) {
      const inv = inverse(shifted(lambda)).inverse;
      const miss = SITES.map((i) => inv[i][i] - 1);
      if (Math.max(...miss.map(Math.abs)) < 1e-13) break;
      const solve = inverse(SITES.map((i) => SITES.map((j) => inv[i][j] ** 2))).inverse;
      const step = SITES.map((i) => SITES.reduce((sum, j) => sum + solve[i][j] * miss[j], 0));
      let size = 1;
      const moved = () => SITES.map((i) => lambda[i] + size * step[i]);
      while (!positive(shifted(moved())) && size > 1e-12) size /= 2;
      lambda = moved();
    }
    const found = inverse(shifted(lambda));
    return {lambda, inverse: found.inverse, logDet: Math.log(found.det)};
  }

  // ψ(m), which stands for ln Z, and its gradient g, at m = tanh x.
  function functional(method, k, theta, x) {
    const m = x.map(Math.tanh), v = m.map((entry) => Math.max(1 - entry * entry, 1e-15));
    let psi = 0;
    const g = SITES.map((i) => {
      const field = SITES.reduce((sum, j) => sum + k[i][j] * m[j], 0);
      const size = Math.abs(x[i]);
      psi += size + Math.log1p(Math.exp(-2 * size)) - x[i] * m[i] + m[i] * theta[i]
        + 0.5 * m[i] * field;
      return theta[i] + field - x[i];
    });
    if (method === "tap") {
      SITES.forEach((i) => {
        const onsager = SITES.reduce((sum, j) => sum + k[i][j] ** 2 * v[j], 0);
        psi += 0.25 * v[i] * onsager;
        g[i] -= m[i] * onsager;
      });
    } else if (method === "adaptive") {
      const root = v.map(Math.sqrt);
      const inner = unitDiagonal(SITES.map((i) => SITES.map((j) => root[i] * k[i][j] * root[j])));
      psi += -0.5 * inner.logDet + 0.5 * inner.lambda.reduce((sum, l) => sum + l - 1, 0);
      SITES.forEach((i) => {
        const sum = SITES.reduce((t, j) => t + k[i][j] * inner.inverse[i][j] * root[j], 0);
        g[i] -= (m[i] * sum) / root[i];
      });
    }
    return {psi, g, m};
  }

  // A maximum of ψ uphill from the magnetizations `start`: {m, logZ, residual}.
  function solve(method, couplings, fields, beta, start) {
    const k = matrix(couplings, beta), theta = fields.map((h) => beta * h);
    let x = start.map((m) => Math.atanh(Math.min(0.9999, Math.max(-0.9999, m))));
    const miss = (y, point) =>
      Math.max(...SITES.map((i) => Math.abs(Math.tanh(y[i] + point.g[i]) - point.m[i])));
    let here = functional(method, k, theta, x), residual = miss(x, here), size = 1;
    for (let n = 0; n < 2000 && residual > 1e-12; n += 1) {
      if (residual < 0.05) {
        // Near the top ψ is flat to rounding: Newton's step on g, slopes by differences.
        const columns = SITES.map((j) => {
          const moved = (by) =>
            functional(method, k, theta, x.map((entry, i) => entry + (i === j ? by : 0))).g;
          const [up, down] = [moved(1e-5), moved(-1e-5)];
          return SITES.map((i) => (up[i] - down[i]) / 2e-5);
        });
        // Only where ψ is concave in m: elsewhere the step leads to a saddle.
        const v = here.m.map((m) => Math.max(1 - m * m, 1e-15));
        const bend = SITES.map((i) => SITES.map((j) =>
          -0.5 * (columns[j][i] * Math.sqrt(v[i] / v[j]) + columns[i][j] * Math.sqrt(v[j] / v[i]))));
        const back = inverse(SITES.map((i) => SITES.map((j) => columns[j][i]))).inverse;
        const next = SITES.map((i) =>
          x[i] - SITES.reduce((sum, j) => sum + back[i][j] * here.g[j], 0));
        const there = functional(method, k, theta, next), left = miss(next, there);
        if (positive(bend) && left < 0.5 * residual && there.psi >= here.psi - 1e-12) {
          [x, here, residual] = [next, there, left];
          continue;
        }
      }
      // Along g the functional rises; half the step as long as it does not.
      let next = null, there = null;
      do {
        next = SITES.map((i) => x[i] + size * here.g[i]);
        there = functional(method, k, theta, next);
        if (there.psi >= here.psi - 1e-15) break;
        size /= 2;
      } while (size > 1e-9);
      [x, here, size] = [next, there, Math.min(1, 1.5 * size)];
      residual = miss(x, here);
    }
    return {m: here.m, logZ: here.psi, residual};
  }

  // The largest difference between two magnetizations.
  const far = (a, b) => Math.max(...SITES.map((i) => Math.abs(a.m[i] - b.m[i])));

  // The maxima of ψ uphill from above and from below the exact magnetizations and from the points
  // `near`, each once, in the order of the first magnetization. No start is symmetric: steps from a
  // symmetric one would end on a saddle.
  const ABOVE = [0.45, 0.4, 0.35], ASIDE = [1e-3, -7e-4, 4e-4];
  function solutions(method, couplings, fields, beta, near = []) {
    const {m} = exact(couplings, fields, beta);
    const starts = [1, -1].map((side) => m.map((entry, i) => 0.5 * entry + side * ABOVE[i]));
    starts.push(...near.map((point) => point.m.map((entry, i) => entry + ASIDE[i])));
    const found = [];
    for (const start of starts) {
      const point = solve(method, couplings, fields, beta, start);
      if (point.residual < 1e-8 && found.every((other) => far(other, point) > 1e-3)) found.push(point);
    }
    return found.sort((a, b) => a.m[0] - b.m[0]);
  }

  // The solutions at each of rising `betas`: what one start misses is found from the next colder or
  // warmer β, so that a curve ends only where its solution does. It yields after each of them, so
  // that a page can draw in between, and returns them all.
  function* search(method, couplings, fields, betas) {
    const found = [];
    for (let n = betas.length - 1; n >= 0; n -= 1) {
      found[n] = solutions(method, couplings, fields, betas[n], found[n + 1]);
      yield;
    }
    for (let n = 1; n < betas.length; n += 1) {
      const missed = found[n - 1].filter((point) => found[n].every((other) => far(point, other) > 0.1));
      if (!missed.length) continue;
      found[n] = solutions(method, couplings, fields, betas[n], [...missed, ...found[n]]);
      yield;
    }
    return found;
  }

  function branches(...given) {
    const work = search(...given);
    let step;
    do step = work.next(); while (!step.done);
    return step.value;
  }

  // The solution of the largest ln Z and the one farthest from it, the same where there is one; none
  // where none converged.
  function bestAndOther(found) {
    if (!found.length) return [];
    const best = found.reduce((a, b) => (b.logZ > a.logZ ? b : a));
    return [best, found.reduce((a, b) => (far(b, best) > far(a, best) ? b : a))];
  }

  return {exact, solve, solutions, search, branches, bestAndOther, inverse, positive};
})();
