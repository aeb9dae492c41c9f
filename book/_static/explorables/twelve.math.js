// Twelve Ising spins on a graph of one's own: the sum over all 4,096 states, and three theories, as
// spinformer.spins.ising and spinformer.spins.mean_field have them. Plain numbers, nothing of the page.
"use strict";
globalThis.spinformer = globalThis.spinformer ?? {};
spinformer.twelve = (() => {
  const COUNT = 12;
  const SITES = Array.from({length: COUNT}, (_, i) => i);

  // Edges [i, j, J] as a symmetric matrix times β.
  function matrix(edges, beta) {
    const k = SITES.map(() => new Float64Array(COUNT));
    for (const [i, j, coupling] of edges) k[i][j] = k[j][i] = beta * coupling;
    return k;
  }

  // Magnetizations and ln Z by the sum over all states, each of which turns one spin of the last.
  function exact(edges, field, beta) {
    const k = matrix(edges, beta), theta = beta * field;
    const s = new Int8Array(COUNT).fill(-1), sums = new Float64Array(COUNT);
    const felt = SITES.map((i) => theta - k[i].reduce((sum, x) => sum + x, 0));
    let score = -COUNT * theta + edges.reduce((sum, [, , coupling]) => sum + beta * coupling, 0);
    // No state has a larger score: the weights cannot overflow.
    const most = COUNT * Math.abs(theta) + edges.reduce((sum, edge) => sum + Math.abs(beta * edge[2]), 0);
    let total = 0;
    for (let code = 1; ; code += 1) {
      const weight = Math.exp(score - most);
      total += weight;
      for (let i = 0; i < COUNT; i += 1) sums[i] += weight * s[i];
      if (code === 1 << COUNT) break;
      const turned = 31 - Math.clz32(code & -code);
      score -= 2 * s[turned] * felt[turned];
      s[turned] = -s[turned];
      for (let i = 0; i < COUNT; i += 1) felt[i] += 2 * k[i][turned] * s[turned];
    }
    return {m: Array.from(sums, (sum) => sum / total), logZ: most + Math.log(total)};
  }

  // ψ(m), which stands for ln Z, and the field that is missing, at m = tanh x.
  function functional(tap, k, theta, x) {
    const m = x.map(Math.tanh), v = m.map((entry) => 1 - entry * entry), g = new Array(COUNT);
    let psi = 0;
    for (let i = 0; i < COUNT; i += 1) {
      const row = k[i];
      let felt = 0, onsager = 0;
      for (let j = 0; j < COUNT; j += 1) {
        felt += row[j] * m[j];
        if (tap) onsager += row[j] * row[j] * v[j];
      }
      const size = Math.abs(x[i]);
      psi += size + Math.log1p(Math.exp(-2 * size)) - x[i] * m[i] + m[i] * theta
        + 0.5 * m[i] * felt + 0.25 * v[i] * onsager;
      g[i] = theta + felt - m[i] * onsager - x[i];
    }
    return {psi, g, m};
  }

  // A maximum of ψ uphill from x.
  function ascend(tap, k, theta, start) {
    let x = start, here = functional(tap, k, theta, x), size = 0.5, residual = 1;
    for (let n = 0; n < 1000; n += 1) {
      residual = Math.max(...SITES.map((i) => Math.abs(Math.tanh(x[i] + here.g[i]) - here.m[i])));
      if (residual < 1e-10) break;
      const next = x.map((entry, i) => entry + size * here.g[i]);
      const there = functional(tap, k, theta, next);
      if (there.psi >= here.psi - 1e-13) [x, here, size] = [next, there, Math.min(1, 1.2 * size)];
      else size /= 2;
    }
    return {m: here.m, logZ: here.psi, residual};
  }

  // Messages between neighbours until they rest: exact on a tree.
  function propagate(edges, theta, k, push) {
    const ways = edges.flatMap(([i, j]) => [[i, j], [j, i]]);
    const into = SITES.map((i) => ways.flatMap(([, to], n) => (to === i ? [n] : [])));
    let messages = ways.map(([from]) => push[from]), residual = 1;
    const told = (site) => theta + into[site].reduce((sum, n) => sum + messages[n], 0);
    const cavity = (n) => told(ways[n][0]) - messages[n ^ 1];
    const tight = ways.map(([from, to]) => Math.tanh(k[from][to]));
    for (let step = 0; step < 300 && residual > 1e-11; step += 1) {
      const whole = SITES.map(told);
      residual = 0;
      messages = messages.map((old, n) => {
        const u = Math.atanh(tight[n] * Math.tanh(whole[ways[n][0]] - messages[n ^ 1]));
        residual = Math.max(residual, Math.abs(u - old));
        // Half of the old one is kept: what would swing for ever comes to rest.
        return 0.5 * (u + old);
      });
      // What does not rest soon does not rest at all.
      if (step === 120 && residual > 0.01) break;
    }
    const logCosh = (x) => Math.abs(x) + Math.log1p(Math.exp(-2 * Math.abs(x))) - Math.LN2;
    const m = SITES.map((i) => Math.tanh(told(i)));
    let logZ = 0;
    for (const i of SITES) {
      const each = [1, -1].map((s) => theta * s + into[i].reduce((sum, n) =>
        sum + logCosh(k[ways[n][0]][i] * s + cavity(n)) - logCosh(cavity(n)), 0));
      logZ += Math.max(...each) + Math.log1p(Math.exp(-Math.abs(each[0] - each[1])));
    }
    edges.forEach(([i, j], n) => {
      const a = cavity(2 * n), b = cavity(2 * n + 1), strength = k[i][j];
      // ln of Σ exp(K s s' + a s + b s') over four states, divided by 4 cosh a cosh b.
      const same = strength + logCosh(a + b), other = -strength + logCosh(a - b);
      logZ -= Math.max(same, other) + Math.log1p(Math.exp(-Math.abs(same - other))) - Math.LN2
        - logCosh(a) - logCosh(b);
    });
    return {m, logZ, residual};
  }

  // The solution of a theory with the largest ln Z, from starts of either sign and of none; null if
  // none came to rest.
  const SIDES = [0, 1, -1];
  function solve(method, edges, field, beta) {
    const k = matrix(edges, beta), theta = beta * field;
    const found = SIDES.map((side) => {
      const push = SITES.map((i) => side * (0.5 + 0.02 * i) + (side ? 0 : 0.01 * Math.cos(3 * i)));
      return method === "bethe" ? propagate(edges, theta, k, push)
        : ascend(method === "tap", k, theta, push.map((x) => theta + x));
    }).filter(({residual}) => residual < 1e-6);
    return found.length ? found.reduce((a, b) => (b.logZ > a.logZ + 1e-9 ? b : a)) : null;
  }

  // Edges as a word: two digits of base twelve for the spins, a sign where the coupling is negative.
  const encode = (edges) => edges.map(([i, j, coupling]) =>
    `${i.toString(COUNT)}${j.toString(COUNT)}${coupling < 0 ? "-" : ""}`).join(".");
  // null where the word is none.
  function decode(word) {
    const edges = [];
    for (const part of word ? word.split(".") : []) {
      const told = /^([0-9ab])([0-9ab])(-?)$/.exec(part);
      if (!told) return null;
      const [i, j] = [told[1], told[2]].map((digit) => parseInt(digit, COUNT)).sort((a, b) => a - b);
      if (i === j || edges.some(([a, b]) => a === i && b === j)) return null;
      edges.push([i, j, told[3] ? -1 : 1]);
    }
    return edges;
  }

  return {COUNT, exact, solve, encode, decode};
})();
