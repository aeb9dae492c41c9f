// The mean field of self-attention with 1-bit tokens: the step of spinformer.dmft.mean_field, one
// system at a time, with the growth of a tangent vector. Plain numbers, nothing of the page.
"use strict";
globalThis.spinformer = globalThis.spinformer ?? {};
spinformer.map = (() => {
  const OUTPUT = 0, VALUE = 1, QUERY = 2, KEY = 3;

  // One system. `network` and `start` as in data.js; `parameters` has beta, gamma and epsilon.
  class System {
    constructor(network, start, parameters) {
      this.network = network;
      this.T = network.window;
      this.P = network.patterns[0].length;
      this.U = network.patterns.length;
      this.phases = network.drive.length;
      this.patterns = Float64Array.from(network.patterns.flat());
      this.readout = network.readout.map((role) => Float64Array.from(role.flat()));
      this.drive = network.drive.map((roles) => roles.map((row) => Float64Array.from(row)));
      const slots = () => new Float64Array(this.T * this.P);
      this.attention = slots(); this.value = slots(); this.key = slots();
      this.moved = slots(); this.movedValue = slots(); this.movedKey = slots();
      this.hidden = new Float64Array(this.U);
      this.slope = new Float64Array(this.U);
      this.query = new Float64Array(this.P);
      this.movedQuery = new Float64Array(this.P);
      this.weight = new Float64Array(this.T);
      this.movedWeight = new Float64Array(this.T);
      // The semantic part of m^o of the newest token, with its factor 1 − ε.
      this.output = new Float64Array(this.P);
      this.restart(start, parameters);
    }

    restart(start, parameters) {
      this.steps = 0;
      this.growth = 0;
      this.cursor = this.T - 1;
      this.position = start.position;
      start.attention.forEach((vector, age) => {
        vector.forEach((entry, a) => { this.attention[this.slot(age) * this.P + a] = entry; });
      });
      // A generic direction, the same each time.
      for (let i = 0; i < this.moved.length; i += 1) this.moved[i] = Math.sin(1.7 * i + 0.3);
      this.set(parameters);
      this.rescale();
      this.growth = 0;
    }

    // Other parameters for the steps to come: tokens in the window are made anew with them.
    set({beta, gamma, epsilon}) {
      this.beta = beta; this.gamma = gamma; this.epsilon = epsilon;
      for (let age = this.T - 1; age > 0; age -= 1) {
        const phase = (this.position - age) % this.phases;
        this.makeToken(this.slot(age), (phase + this.phases) % this.phases);
      }
    }

    slot(age) {
      const found = this.cursor - age;
      return found < 0 ? found + this.T : found;
    }

    // m^α_a = (1 − ε) ⟨W^α_a tanh(β W^o·A)⟩ + ε × position, and its derivative along `moved`.
    makeToken(slot, phase) {
      const {P, U, patterns, hidden, slope, epsilon} = this;
      const at = slot * P;
      for (let u = 0; u < U; u += 1) {
        let field = 0, change = 0;
        for (let a = 0; a < P; a += 1) {
          field += patterns[u * P + a] * this.attention[at + a];
          change += patterns[u * P + a] * this.moved[at + a];
        }
        const tanh = Math.tanh(this.beta * field);
        hidden[u] = (1 - epsilon) * tanh;
        slope[u] = (1 - epsilon) * this.beta * (1 - tanh * tanh) * change;
      }
      for (let a = 0; a < P; a += 1) {
        for (let role = VALUE; role <= KEY; role += 1) {
          let sum = epsilon * this.drive[phase][role][a], change = 0;
          const row = this.readout[role];
          for (let u = 0; u < U; u += 1) {
            sum += row[a * U + u] * hidden[u];
            change += row[a * U + u] * slope[u];
          }
          if (role === VALUE) { this.value[at + a] = sum; this.movedValue[at + a] = change; }
          else if (role === KEY) { this.key[at + a] = sum; this.movedKey[at + a] = change; }
          else { this.query[a] = sum; this.movedQuery[a] = change; }
        }
      }
    }

    // Attention of the newest token over the window, into the oldest slot.
    attend() {
      const {T, P, weight, movedWeight} = this;
      let largest = -Infinity;
      for (let age = 0; age < T; age += 1) {
        const at = this.slot(age) * P;
        let score = 0, change = 0;
        for (let a = 0; a < P; a += 1) {
          score += this.query[a] * this.key[at + a];
          change += this.movedQuery[a] * this.key[at + a] + this.query[a] * this.movedKey[at + a];
        }
        weight[age] = this.gamma * score;
        movedWeight[age] = this.gamma * change;
        if (weight[age] > largest) largest = weight[age];
      }
      let total = 0, mean = 0;
      for (let age = 0; age < T; age += 1) {
        weight[age] = Math.exp(weight[age] - largest);
        total += weight[age];
      }
      for (let age = 0; age < T; age += 1) {
        weight[age] /= total;
        mean += weight[age] * movedWeight[age];
      }
      const next = (this.cursor + 1) % T;
      for (let a = 0; a < P; a += 1) {
        let sum = 0, change = 0;
        for (let age = 0; age < T; age += 1) {
          const at = this.slot(age) * P + a;
          sum += weight[age] * this.value[at];
          change += weight[age] * (this.movedValue[at] + (movedWeight[age] - mean) * this.value[at]);
        }
        this.attention[next * P + a] = sum;
        this.moved[next * P + a] = change;
      }
      this.cursor = next;
    }

    // One token. Afterwards `output` is its m^o.
    step() {
      this.makeToken(this.cursor, this.position);
      const row = this.readout[OUTPUT];
      for (let a = 0; a < this.P; a += 1) {
        let sum = 0;
        for (let u = 0; u < this.U; u += 1) sum += row[a * this.U + u] * this.hidden[u];
        this.output[a] = sum;
      }
      this.attend();
      this.position = (this.position + 1) % this.phases;
      this.steps += 1;
      if (this.steps % 8 === 0) this.rescale();
    }

    // The tangent vector back to length one; `growth` sums the logarithms of what was taken out.
    rescale() {
      let square = 0;
      for (const entry of this.moved) square += entry * entry;
      const length = Math.sqrt(square);
      if (!(length > 0)) return;
      this.growth += Math.log(length);
      for (const vector of [this.moved, this.movedValue, this.movedKey]) {
        for (let i = 0; i < vector.length; i += 1) vector[i] /= length;
      }
    }

    run(steps) {
      for (let n = 0; n < steps; n += 1) this.step();
    }

    // The contexts now, newest vector first.
    context() {
      const attention = [];
      for (let age = 0; age < this.T; age += 1) {
        const at = this.slot(age) * this.P;
        attention.push(Array.from(this.attention.subarray(at, at + this.P)));
      }
      return {attention, position: this.position};
    }
  }

  // (steps, P) outputs of a fresh system.
  function trajectory(network, start, parameters, steps) {
    const system = new System(network, start, parameters);
    const rows = [];
    for (let n = 0; n < steps; n += 1) { system.step(); rows.push(Array.from(system.output)); }
    return rows;
  }

  // Growth of a tangent vector in nats per step over `steps` steps after `transient` dropped ones.
  function exponent(network, start, parameters, transient, steps) {
    const system = new System(network, start, parameters);
    system.run(transient);
    system.rescale();
    const before = system.growth;
    system.run(steps);
    system.rescale();
    return (system.growth - before) / steps;
  }

  // What the mean growth over each of the stretches of a text, of `length` tokens, says of small
  // changes. The first stretch holds the transient and does not count; after it the last MOST do, so
  // that a chaos that ends is forgotten; null before there are LEAST. `error` is the standard error
  // of the mean, and no less than 1/tokens: even on a closed curve, where nothing grows, the length
  // of a tangent vector goes up and down by some factor. A growth within three errors is told from
  // nothing only by its limit: below LITTLE it is none.
  const LEAST = 5, MOST = 10, LITTLE = 1e-3;
  function verdict(rates, length) {
    const last = rates.slice(1).slice(-MOST), n = last.length;
    if (n < LEAST) return null;
    const mean = last.reduce((sum, rate) => sum + rate, 0) / n;
    const variance = last.reduce((sum, rate) => sum + (rate - mean) ** 2, 0) / (n - 1);
    const error = Math.max(Math.sqrt(variance / n), 1 / (n * length));
    const away = Math.abs(mean) > 3 * error;
    const says = away ? (mean > 0 ? "grow" : "die out")
      : Math.abs(mean) + 3 * error < LITTLE ? "stay" : "open";
    return {mean, error, count: n, says};
  }

  // Power |X_k|² / Σ w² of a real signal of n = 2^j numbers, k = 0 … n/2: the mean taken off, then
  // weighted with w = sin²(πi/n), so that a line stays narrow at any frequency.
  function power(signal) {
    const n = signal.length;
    let mean = 0;
    for (const entry of signal) mean += entry / n;
    const re = new Float64Array(n), im = new Float64Array(n);
    for (let i = 0, j = 0; i < n; i += 1) {
      re[j] = (signal[i] - mean) * Math.sin((Math.PI * i) / n) ** 2;
      let bit = n >> 1;
      while (bit && j & bit) { j ^= bit; bit >>= 1; }
      j |= bit;
    }
    for (let size = 2; size <= n; size *= 2) {
      const half = size / 2;
      for (let k = 0; k < half; k += 1) {
        const cos = Math.cos((2 * Math.PI * k) / size), sin = -Math.sin((2 * Math.PI * k) / size);
        for (let i = k; i < n; i += size) {
          const x = re[i + half] * cos - im[i + half] * sin;
          const y = re[i + half] * sin + im[i + half] * cos;
          re[i + half] = re[i] - x; im[i + half] = im[i] - y;
          re[i] += x; im[i] += y;
        }
      }
    }
    const found = new Float64Array(n / 2 + 1);
    for (let k = 0; k <= n / 2; k += 1) found[k] = (re[k] * re[k] + im[k] * im[k]) / (0.375 * n);
    return found;
  }

  return {System, trajectory, exponent, verdict, power, LEAST};
})();
