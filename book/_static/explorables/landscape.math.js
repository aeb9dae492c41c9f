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

  // Patterns on one spot, closer than their discs are wide, are one to attention: of each pattern the
  // first that is there.
  const SPOT = 0.05;
  function spots(patterns) {
    return patterns.map((x) =>
      patterns.findIndex((y) => Math.hypot(x[0] - y[0], x[1] - y[1]) < SPOT));
  }

  // The first pattern of the spot that has more than half of the weight of a state, -1 if none has: a
  // mixture. What rounding leaves between two equal weights does not count.
  function recalled(patterns, state, beta) {
    const first = spots(patterns), found = weights(patterns, state, beta);
    return found.findIndex((_, i) =>
      found.reduce((sum, weight, j) => sum + (first[j] === i ? weight : 0), 0) > 0.501);
  }

  // E(ξ) = ½ ξᵀξ − β⁻¹ log Σ_i exp(β x_iᵀξ).
  function energy(patterns, state, beta) {
    return 0.5 * dot(state, state) - look(patterns, state, beta).logSum / beta;
  }

  // The quadratic energy of the classical network, −½ Σ_i (x_iᵀξ)².
  function classical(patterns, state) {
    return -0.5 * patterns.reduce((sum, x) => sum + dot(x, state) ** 2, 0);
  }

  // ξ − η ∇E: with η = 1 the query becomes the average that attention reads. One pass with a running
  // maximum, without an array for each step: a plane asks for a million of them.
  function update(patterns, state, beta, step) {
    let largest = -Infinity, total = 0, across = 0, along = 0;
    for (const [x, y] of patterns) {
      const score = beta * (x * state[0] + y * state[1]);
      if (score > largest) {
        const shrunk = Math.exp(largest - score);
        total *= shrunk; across *= shrunk; along *= shrunk;
        largest = score;
      }
      const weight = Math.exp(score - largest);
      total += weight; across += weight * x; along += weight * y;
    }
    return [(1 - step) * state[0] + (step * across) / total,
      (1 - step) * state[1] + (step * along) / total];
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

  // How a path ends: the number of a pattern (as in `recalled`), or MIXTURE, at rest; MOVING if it
  // took all its steps without rest; AWAY beyond all patterns. The plane's colours, the bars and the
  // sentence all ask here.
  const MIXTURE = -1, MOVING = -2, AWAY = -3;
  function end(patterns, states, beta) {
    const last = states.at(-1), before = states.at(-2);
    if (!(Math.hypot(...last) < 1e3)) return AWAY;
    const moved = Math.hypot(last[0] - before[0], last[1] - before[1]);
    return moved < 1e-6 ? recalled(patterns, last, beta) : MOVING;
  }

  // Energies at the middles of side × side cells of the plane −reach … reach, row by row from above:
  // without an array for each, a figure asks for tens of thousands.
  function relief(patterns, beta, reach, side) {
    const found = new Float64Array(side * side), scores = new Float64Array(patterns.length);
    for (let cell = 0; cell < found.length; cell += 1) {
      const x = reach * ((2 * ((cell % side) + 0.5)) / side - 1);
      const y = reach * (1 - (2 * (Math.floor(cell / side) + 0.5)) / side);
      let largest = -Infinity, total = 0;
      for (let i = 0; i < scores.length; i += 1) {
        scores[i] = beta * (patterns[i][0] * x + patterns[i][1] * y);
        if (scores[i] > largest) largest = scores[i];
      }
      for (let i = 0; i < scores.length; i += 1) total += Math.exp(scores[i] - largest);
      found[cell] = 0.5 * (x * x + y * y) - (largest + Math.log(total)) / beta;
    }
    return found;
  }

  return {weights, spots, recalled, energy, classical, update, path, end, relief, MIXTURE, MOVING, AWAY};
})();
