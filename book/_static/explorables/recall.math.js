// A memory of pictures: attention whose keys and values are the pictures, spinformer.hopfield.continuous
// in as many dimensions as there are pixels. Plain numbers, nothing of the page.
"use strict";
globalThis.spinformer = globalThis.spinformer ?? {};
spinformer.recall = (() => {
  // softmax_i(β x_iᵀξ).
  function weights(patterns, state, beta) {
    const scores = patterns.map((x) => beta * x.reduce((sum, entry, n) => sum + entry * state[n], 0));
    const largest = Math.max(...scores);
    const grown = scores.map((score) => Math.exp(score - largest));
    const total = grown.reduce((sum, weight) => sum + weight, 0);
    return grown.map((weight) => weight / total);
  }

  // What attention returns: Σ_i softmax_i(β x_iᵀξ) x_i.
  function update(patterns, state, beta) {
    const found = weights(patterns, state, beta);
    return state.map((_, n) => patterns.reduce((sum, x, i) => sum + found[i] * x[n], 0));
  }

  // The state at which updates end, and how many it took; at most `steps`.
  function rest(patterns, query, beta, steps) {
    let state = query;
    for (let n = 1; n <= steps; n += 1) {
      const next = update(patterns, state, beta);
      const moved = Math.max(...next.map((entry, i) => Math.abs(entry - state[i])));
      state = next;
      if (moved < 1e-6) return {state, steps: n};
    }
    return {state, steps};
  }

  // A picture of ±1 as hexadecimal digits, four pixels each, and back; null for anything else.
  function encode(picture) {
    let text = "";
    for (let n = 0; n < picture.length; n += 4) {
      text += picture.slice(n, n + 4).reduce((sum, x) => 2 * sum + (x > 0 ? 1 : 0), 0).toString(16);
    }
    return text;
  }
  function decode(text, size) {
    if (!/^[0-9a-f]*$/.test(text) || 4 * text.length !== size) return null;
    return [...text].flatMap((digit) =>
      [8, 4, 2, 1].map((bit) => (parseInt(digit, 16) & bit ? 1 : -1)));
  }

  return {weights, update, rest, encode, decode};
})();
