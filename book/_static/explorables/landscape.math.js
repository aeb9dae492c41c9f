// The energy landscape of attention over a few patterns in the plane: spinformer.hopfield.continuous.
// Plain numbers, nothing of the page.
"use strict";
globalThis.spinformer = globalThis.spinformer ?? {};
spinformer.landscape = (() => {
  const dot = (x, y) => x[0] * y[0] + x[1] * y[1];

  // softmax_i(β x_iᵀξ) and the logarithm of its sum of exponentials.
  function look(patterns, state, beta) {
    const scores = patterns.map((x) => beta * dot(x, state));
    const largest = Math.max(...scores);
    const weights = scores.map((score) => Math.exp(score - largest));
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    return {weights: weights.map((weight) => weight / total), logSum: largest + Math.log(total)};
  }

  function weights(patterns, state, beta) {
    return look(patterns, state, beta).weights;
  }

  // The pattern that has more than half of the weight of a state, -1 if none has: a mixture. What
  // rounding leaves between two equal weights does not count.
  function recalled(patterns, state, beta) {
    return weights(patterns, state, beta).findIndex((weight) => weight > 0.501);
  }

  // E(ξ) = ½ ξᵀξ − β⁻¹ log Σ_i exp(β x_iᵀξ).
  function energy(patterns, state, beta) {
    return 0.5 * dot(state, state) - look(patterns, state, beta).logSum / beta;
  }

  // The quadratic energy of the classical network, −½ Σ_i (x_iᵀξ)².
  function classical(patterns, state) {
    return -0.5 * patterns.reduce((sum, x) => sum + dot(x, state) ** 2, 0);
  }

  // ξ − η ∇E: with η = 1 the query becomes the average that attention reads.
  function update(patterns, state, beta, step) {
    const found = look(patterns, state, beta).weights;
    return [0, 1].map((axis) => {
      const read = patterns.reduce((sum, x, i) => sum + found[i] * x[axis], 0);
      return (1 - step) * state[axis] + step * read;
    });
  }

  // States from `query` on until one moves by less than 1e-6, at most `steps` of them, or leaves.
  function path(patterns, query, beta, step, steps) {
    const states = [query];
    for (let n = 0; n < steps; n += 1) {
      const last = states.at(-1), next = update(patterns, last, beta, step);
      states.push(next);
      if (Math.hypot(next[0] - last[0], next[1] - last[1]) < 1e-6) break;
      if (!(Math.hypot(...next) < 1e3)) break;
    }
    return states;
  }

  return {weights, recalled, energy, classical, update, path};
})();
