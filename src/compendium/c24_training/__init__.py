"""Training stacks of spin systems that return their true response, against what they compete with.

Written before the full run, beside the predictions that the chapter gives: logistic regression and
the nearest neighbour are ahead of all stacks; in recall free spins stay below 0.2 and the saddle
gets above 0.9; in the last of four untrained layers the residual of the tokens is below 0.3 for
spins and for attention without skip, above 0.5 for attention with skip and for the transformer.

With a thin tuning (one training a cell, 3 rates, 2 strengths, on the digits 80 of 200 updates) one
step led the saddle by nine points, but the saddle trained unsteadily. Written before tuning,
with the saddle's validation losses on the digits seen, after which a rate that rises in the first
tenth of the updates (0.01 lower only), a rate of 0.001 (0.96 instead of 0.31) and g = 1 (0.42) were
left out: the saddle's mean on the digits is above 0.87, and one step leads by less than 4 points;
the interval of saddle less frozen couplings contains zero, its mean is positive; on recall all ten
trainings of the saddle are above 0.98, and freezing costs 2 to 10 points with an interval above
zero; in stacks of four more than half of the correlation is left undriven.
"""
