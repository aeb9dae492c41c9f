// Three tokens in the plane as a system of vector spins: spinformer.spins.module with D = 2, one
// head and the units of spinformer.spins.large_d (spins of length one, fields h of any
// length). Plain numbers, nothing of the page; spins.math.js is needed.
"use strict";
globalThis.spinformer = globalThis.spinformer ?? {};
spinformer.module = (() => {
  const {inverse, positive} = spinformer.spins;
  const SITES = [0, 1, 2], AXES = [0, 1], DIM = 2;

  const table = (entry) => SITES.map((i) => SITES.map((j) => entry(i, j)));
  const vectors = (entry) => SITES.map((i) => AXES.map((a) => entry(i, a)));
  const dot = (x, y) => x[0] * y[0] + x[1] * y[1];
  const sum = (entry) => SITES.reduce((total, i) => total + entry(i), 0);
  const size = (x) => Math.sqrt(sum((i) => dot(x[i], x[i])));
  const minus = (x, y) => vectors((i, a) => x[i][a] - y[i][a]);

  // A = γ√D times a turn by `turn` degrees: the score of i with j is h_i A h_jᵀ.
  function bilinear({gamma, turn}) {
    const size = gamma * Math.sqrt(DIM), angle = (turn * Math.PI) / 180;
    return [[size * Math.cos(angle), size * Math.sin(angle)],
      [-size * Math.sin(angle), size * Math.cos(angle)]];
  }

  // J = g softmax(h A hᵀ) without the diagonal, and B = J + Jᵀ.
  function couplings(h, knobs) {
    const a = bilinear(knobs);
    const queries = vectors((i, axis) => h[i][0] * a[0][axis] + h[i][1] * a[1][axis]);
    const j = SITES.map((i) => {
      const scores = SITES.map((k) => (k === i ? -Infinity : dot(queries[i], h[k])));
      const most = Math.max(...scores), weights = scores.map((s) => Math.exp(s - most));
      const total = weights.reduce((x, y) => x + y);
      return weights.map((w) => (knobs.strength * w) / total);
    });
    return {j, b: table((i, k) => j[i][k] + j[k][i])};
  }

  // Σ C_mn ∂J_mn/∂h: what the couplings' dependence on the fields adds to the magnetization.
  function response(h, j, c, knobs) {
    const a = bilinear(knobs);
    const weights = SITES.map((m) => {
      const mean = sum((n) => j[m][n] * c[m][n]) / knobs.strength;
      return SITES.map((k) => j[m][k] * (c[m][k] - mean));
    });
    return vectors((i, axis) => sum((k) => {
      const query = weights[i][k] * (h[k][0] * a[axis][0] + h[k][1] * a[axis][1]);
      return query + weights[k][i] * (h[k][0] * a[0][axis] + h[k][1] * a[1][axis]);
    }));
  }

  // ---- the fixed point of the mean-field equations with the Onsager term

  const gain = (theta, beta) => (2 * beta) / (1 + Math.sqrt(1 + 4 * beta * beta * dot(theta, theta)));

  // The local field in its three parts, and the factor by which a free spin follows it.
  function step(m, h, b, beta) {
    return SITES.map((i) => {
      const back = beta * sum((j) => b[i][j] ** 2 * (1 - dot(m[j], m[j])));
      const parts = [h[i], AXES.map((a) => sum((j) => b[i][j] * m[j][a])), m[i].map((x) => -back * x)];
      const theta = AXES.map((a) => parts[0][a] + parts[1][a] + parts[2][a]);
      const factor = gain(theta, beta);
      return {parts: parts.map((x) => x.map((entry) => factor * entry)), next: theta.map((x) => factor * x)};
    });
  }

  // From the free spins: one whole step, or damped steps to the fixed point.
  function fixedPoint(h, b, beta, {once}) {
    const after = (m) => step(m, h, b, beta).map(({next}) => next);
    const miss = (m, next) => size(minus(next, m)) / Math.sqrt(3);
    let origin = h.map((x) => x.map((entry) => gain(x, beta) * entry)), m = after(origin);
    if (!once) {
      let damping = 1, last = Infinity;
      for (let n = 0; n < 4000; n += 1) {
        const next = after(m), residual = miss(m, next);
        if (residual < 1e-14) break;
        if (residual > 0.9 * last) damping = Math.max(0.02, 0.7 * damping);
        last = residual;
        m = vectors((i, a) => m[i][a] + damping * (next[i][a] - m[i][a]));
      }
      origin = m;
    }
    const width = m.map((x) => 1 - dot(x, x));
    const c = table((i, j) => (i === j ? 1 : dot(m[i], m[j]) + beta * b[i][j] * width[i] * width[j]));
    const [residual, mixing, onsager] =
      [0, 1, 2].map((part) => step(origin, h, b, beta).map(({parts}) => parts[part]));
    return {m, c, missed: miss(m, after(m)), residual, mixing, onsager};
  }

  // ---- the saddle point of the large-D free energy, and the next order in 1/D

  // t with C_ii = 1, by Newton's method inside the positive V = diag t − B/2.
  function saddle(h, b, beta) {
    let t = SITES.map((i) => 0.5 * sum((j) => Math.abs(b[i][j])) + 0.5 / beta + 0.5 * Math.hypot(...h[i]));
    const shifted = (at) => table((i, j) => (i === j ? at[i] : 0) - b[i][j] / 2);
    const state = (at) => {
      const v = inverse(shifted(at)).inverse;
      const m = vectors((i, a) => 0.5 * sum((j) => v[i][j] * h[j][a]));
      const c = table((i, j) => v[i][j] / (2 * beta) + dot(m[i], m[j]));
      const slope = table((i, j) => v[i][j] ** 2 / (2 * beta) + 2 * v[i][j] * dot(m[i], m[j]));
      return {m, c, slope, missed: Math.max(...SITES.map((i) => Math.abs(c[i][i] - 1)))};
    };
    let here = state(t);
    for (let n = 0; n < 80 && here.missed > 1e-14; n += 1) {
      const back = inverse(here.slope).inverse;
      const move = SITES.map((i) => sum((j) => back[i][j] * (here.c[j][j] - 1)));
      let length = 1, there = null;
      do {
        const at = t.map((x, i) => x + length * move[i]);
        there = positive(shifted(at)) ? {at, ...state(at)} : null;
        length /= 2;
      } while ((!there || there.missed > Math.max(2 * here.missed, 1e-13)) && length > 1e-9);
      if (!there || (there.missed >= here.missed && here.missed < 1e-12)) break;
      t = there.at;
      here = there;
    }
    return {...here, logDet: Math.log(inverse(here.slope.map((row) => row.map((x) => x / (2 * beta)))).det)};
  }

  // What the order 1/D adds to the saddle's magnetization: the slope of its term in ln Z.
  function correction(h, b, beta) {
    const by = 1e-3;
    return vectors((i, a) => {
      const at = (shift) => {
        const moved = h.map((x) => [...x]);
        moved[i][a] += shift;
        return saddle(moved, b, beta).logDet;
      };
      const slope = (8 * (at(by) - at(-by)) - (at(2 * by) - at(-2 * by))) / (12 * by);
      return -slope / (2 * DIM * beta);
    });
  }

  // ---- the truth: the integral over the three directions

  // ln I₀(x) and I₁(x)/I₀(x).
  function bessel(x) {
    if (x < 25) {
      const q = (x * x) / 4;
      let zero = 1, one = 1, term = 1;
      for (let k = 1; term > 1e-17 * zero; k += 1) {
        term *= q / (k * k);
        zero += term;
        one += term / (k + 1);
      }
      return [Math.log(zero), (x * one) / (2 * zero)];
    }
    let zero = 1, one = 1, first = 1, second = 1;
    for (let k = 1; k < 25; k += 1) {
      first *= (2 * k - 1) ** 2 / (8 * k * x);
      second *= -(4 - (2 * k - 1) ** 2) / (8 * k * x);
      zero += first;
      one += second;
    }
    return [x - 0.5 * Math.log(2 * Math.PI * x) + Math.log(zero), one / zero];
  }

  // ⟨u⟩ and C by a sum over `nodes`² directions of spins 1 and 2, the third in closed form.
  function exact(h, b, beta, nodes = 64) {
    const circle = Array.from({length: nodes}, (_, n) =>
      [Math.cos((2 * Math.PI * n) / nodes), Math.sin((2 * Math.PI * n) / nodes)]);
    const kappa = DIM * beta;
    let largest = -Infinity, total = 0;
    let kept = Array(9).fill(0);
    for (const u of circle) {
      for (const v of circle) {
        const y = AXES.map((a) => kappa * (h[2][a] + b[0][2] * u[a] + b[1][2] * v[a]));
        const length = Math.hypot(y[0], y[1]), [logZ, ratio] = bessel(length);
        const score = kappa * (b[0][1] * dot(u, v) + dot(h[0], u) + dot(h[1], v)) + logZ;
        if (score > largest) {
          const fall = Math.exp(largest - score);
          total *= fall;
          kept = kept.map((x) => x * fall);
          largest = score;
        }
        const weight = Math.exp(score - largest);
        const third = length > 0 ? [(ratio * y[0]) / length, (ratio * y[1]) / length] : [0, 0];
        total += weight;
        kept[0] += weight * u[0]; kept[1] += weight * u[1];
        kept[2] += weight * v[0]; kept[3] += weight * v[1];
        kept[4] += weight * third[0]; kept[5] += weight * third[1];
        kept[6] += weight * dot(u, v);
        kept[7] += weight * dot(u, third);
        kept[8] += weight * dot(v, third);
      }
    }
    const mean = kept.map((x) => x / total);
    const pairs = [[0, 6, 7], [6, 0, 8], [7, 8, 0]];
    return {m: vectors((i, a) => mean[2 * i + a]), c: table((i, j) => (i === j ? 1 : mean[pairs[i][j]])),
      logZ: largest + Math.log(total / nodes ** 2)};
  }

  // ---- the module and its meter

  // Smallest eigenvalue of a symmetric 3 × 3 matrix, by its characteristic polynomial.
  function lowest(a) {
    const q = (a[0][0] + a[1][1] + a[2][2]) / 3;
    const shifted = table((i, j) => a[i][j] - (i === j ? q : 0));
    const p = Math.sqrt(sum((i) => sum((j) => shifted[i][j] ** 2)) / 6);
    if (p < 1e-300) return q;
    const det = inverse(shifted.map((row) => row.map((x) => x / p))).det / 2;
    return q + 2 * p * Math.cos(Math.acos(Math.max(-1, Math.min(1, det))) / 3 + (2 * Math.PI) / 3);
  }

  // Everything about tokens h: couplings, parts, the output of the module, its meter.
  // `solver` as in SpinTransformerModule, or "one step".
  function solve(h, knobs) {
    const {j, b} = couplings(h, knobs), {beta} = knobs;
    const truth = saddle(h, b, beta);
    let found;
    if (knobs.solver === "saddle") {
      const factor = truth.m.map((m) => beta * (1 - dot(m, m)));
      const residual = vectors((i, a) => factor[i] * h[i][a]);
      const mixing = vectors((i, a) => factor[i] * sum((k) => b[i][k] * truth.m[k][a]));
      found = {m: truth.m, c: truth.c, missed: truth.missed, residual, mixing,
        onsager: vectors((i, a) => truth.m[i][a] - residual[i][a] - mixing[i][a])};
    } else {
      found = fixedPoint(h, b, beta, {once: knobs.solver === "one step"});
    }
    const back = response(h, j, found.c, knobs);
    const covariance = table((i, k) => found.c[i][k] - dot(found.m[i], found.m[k]));
    const largest = Math.max(...[[0, 1], [0, 2], [1, 2]].map(([i, k]) => Math.abs(found.c[i][k])));
    const meter = {
      converged: found.missed < 1e-9,
      distance: size(minus(found.m, truth.m)) / size(truth.m),
      correction: size(correction(h, b, beta)) / size(truth.m),
      largest,
      lowest: lowest(covariance),
    };
    meter.physical = largest <= 1.001 && meter.lowest >= -0.001;
    return {...found, j, b, response: back, output: vectors((i, a) => found.m[i][a] + back[i][a]), meter};
  }

  // The true response at the same couplings: {m, c, output}.
  function solveExactly(h, knobs, nodes = 64) {
    const {j, b} = couplings(h, knobs);
    const {m, c} = exact(h, b, knobs.beta, nodes);
    const back = response(h, j, c, knobs);
    return {m, c, output: vectors((i, a) => m[i][a] + back[i][a])};
  }

  return {solve, solveExactly, error: (x, y) => size(minus(x, y)) / size(y)};
})();
