"""What demonstrations do to a query: in a Hopfield memory, and in a trained few-shot reader.

Predictions, written before the full runs (the sizes were chosen with seeds 100 to 103):

* k_A and k_B copies move the boundary between two demonstrations by log(k_A/k_B) over the slope of
  the score difference (`boundary_position`). In the trained model the same holds with the slopes
  measured at equal counts (`boundary`): slope of shift times stiffness against log(k_A/k_B) within
  20 % of 1, for digits of unseen classes, in the trainings "balanced", "matched" and "neutral" (in
  which counts say nothing about the query; left out later).
* A shift at 8 : 1 three times that at 2 : 1 with softmax attention, 7/3 with linear attention,
  which is trained alike and is the control that can break the law.
* The kick that a query outlives grows with the number of demonstrations, not with shuffled words
  nor with other classes. In a memory that looks at demonstrations alone, copies of both
  sides alike change nothing.
* A word that is contradicted by one demonstration is kept for one labeling and given up for many.
"""
