"""Can driven vector spins learn? Recall of pairs and the next character, against attention.

Written before the full-size trainings, beside the predictions that the chapter gives, after a dozen
of the arm "driven" (one seed, recall, 400 updates: accuracy 0.3 to 0.5 from g = 1, 1.0 from g = 3),
one each of "attention" (1.0) and "symmetric" (0.13), and three on the text (3.39, 3.21 and 1.35
bits): in recall "driven" is right in more than 0.9, attention by less than 0.05 more, "naive" and
"one step" within 0.05, "frozen" in less than 0.25; in the text "symmetric" seems to need fewer bits
than counted triples in one pass and needs more than counted pairs where the future is not written
yet; entropy production has risen at update 25 or 50, and ends higher with shuffled answers.

After the tuning and 23 of 70 trainings of recall: "frozen" is no null, as its embeddings turn the
couplings to what the task needs (validation bits 0.02). The arm "uniform" was added then, expected
at more bits than "driven" in the text.
"""
