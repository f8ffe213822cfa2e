"""Two programs in one job: a learner, and actors that feed it.  Both are this file; an argument distinguishes them.

hvdrun -np 1 examples/learner_actors.py learner : -np 3 examples/learner_actors.py actor

The learner sends its estimate to all ranks.  Each actor draws samples and answers with its gradient.  The actors average
their gradients over the process set of their program.  The estimate converges to the mean of the samples.
"""

import sys

import numpy as np

import hvd.numpy as hvd

ROUNDS, LEARNING_RATE, MEAN = 40, 0.2, 3.0

hvd.init()
learners, actors = hvd.program_sets()
first_actor = actors.ranks[0]
generator = np.random.default_rng(hvd.rank())
estimate = np.zeros(1)

for _ in range(ROUNDS):
    estimate = hvd.broadcast(estimate, root_rank=0)
    gradient = np.zeros(1)
    if sys.argv[1] == "actor":
        gradient = estimate - generator.normal(MEAN, 1.0, 256).mean()
        gradient = hvd.allreduce(gradient, op=hvd.Average, process_set=actors)
    gradient = hvd.broadcast(gradient, root_rank=first_actor)
    estimate = estimate - LEARNING_RATE * gradient

if sys.argv[1] == "learner":
    print(f"{learners.size()} learner, {actors.size()} actors: the mean is about {estimate[0]:.2f}")
