"""Gradients through the mean field as a signal for training the network of finite N.

Predictions, written before the full runs (sizes and units were chosen with trial runs of other
seeds):

* Against the exact gradient of few bits (`quality`): the limit's is off by a bias that falls as
  1/N; straight-through keeps a smaller part of that bias; REINFORCE has none. Variance of one
  path, over the squared norm of the exact gradient: straight-through 1/N, REINFORCE with a
  baseline the same at every N, without one growing as N.
* At equal path-steps (`training`), loss measured at N = 9,900: the limit below REINFORCE in both
  tasks; the limit and straight-through within 0.02 bits per bit of each other. At N = 99, on the
  cycle, straight-through below the limit, for it is trained on the noise that it is tested on.
* What was trained in the limit loses at finite N an excess that falls as 1/N (slope −1 ± 0.25
  between 99 and 99,000), less than 0.02 bits per bit at 9,900.
* Signs instead of relaxed weights spoil all of it: above one bit per bit on the cycle.
* Truncated to one step, the limit's gradient is worse on the bytes; the tables of byte pairs stay
  better than every network, the table of independent bits does not.
* The typical norm of the gradient (`horizons`) grows with the horizon h as e^{λh} in chaos, not
  e^{2λh}; as h in quasi-periodic motion; not at all on a cycle. The gradient at finite N agrees
  with the limit's up to about ln N/(2λ) tokens, and has nothing of its size beyond.
"""
