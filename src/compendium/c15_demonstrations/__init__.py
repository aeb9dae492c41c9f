"""What demonstrations do to a query: in a Hopfield memory, and in a trained few-shot reader.

Predicted before the full runs (sizes were chosen with seeds 100 to 103), beyond what the chapter
and the claims A16 and A16b say: the slopes of the law within 20 % of 1, of unseen classes, in the
trainings "balanced", "matched" and "neutral" (in which counts say nothing about the query; left
out later); the kick that a query outlives does not grow with shuffled words nor with other classes,
and in a memory that looks at demonstrations alone not with copies of both sides alike; a word that
is contradicted by one demonstration is kept for one labeling and given up for many.
"""
