"""The numbers that random keys are folded with, all of them.

A seed's key is folded with a phase, the phase's with the number of an episode; whoever draws in
that episode folds in a stream. Two numbers under one key never meet. Where a number is said to be
for every step, it is that of step 0, and those of later steps follow it.
"""

from __future__ import annotations

# Under a seed's key.
BATCH = 0
"""Episodes of the belief method; learning step h of the paper's method has phase h."""
FITTING = 1 << 29
"""First weights of the paper's networks."""
EPOCHS = FITTING + 1
"""How the paper's networks are trained, for every step."""
STAGES = FITTING + 4
"""Baselines, with a key for each of their stages."""
EVALUATION = 1 << 30
DIAGNOSIS = EVALUATION + 1
MONITORING = EVALUATION + 2
CALIBRATION = EVALUATION + 3
WANDERING = EVALUATION + 4
"""Episodes from which first observations are clustered."""
ONLINE = EVALUATION + 6
"""Episodes of Algorithm 3."""
RECORDING = EVALUATION + 7
CONTINUING = EVALUATION + 8
"""Learning that goes on from a policy: a key for each policy, with phases as under a seed's."""
CERTIFICATION = EVALUATION + 32
"""With a phase for every attempt."""
BLIND = EVALUATION + 64
"""Episodes of commands that were chosen beforehand."""

# Under the key of a stage of a baseline.
STARTING = FITTING + 2
SHUFFLING = FITTING + 3
SCORING = FITTING + 5
DOMAINS = FITTING + 6
TRAINING = EVALUATION + 2

# Under an episode's key.
START = 0
SIGHT = 1
"""What is seen first; after step h it is SIGHT + 2 (h + 1)."""
HAPPENING = 2
"""What step h brings about is drawn from HAPPENING + 2 h."""
ELSEWHERE = 1 << 26
"""What is seen where one was carried to."""
CIRCUMSTANCES = 1 << 27
"""What an episode keeps from its first step to its last."""
HINDRANCE = CIRCUMSTANCES + 1
"""For every step."""
ACTING = 1 << 28
"""What a learner draws to act by: one number for every step, or one for the exploring step."""
COMPLETION = ACTING + 3
"""Random actions after the exploring step, for every step."""
