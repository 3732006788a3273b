"""Algorithm 2 in PyTorch, as one would write it; runs in .venv-learners, not in ours.

python torch_tasid.py TABLES EPISODES SEED THREADS [SECONDS]: a line of JSON with what learning took
and what the policy earns. It gives up after so many seconds of processor time.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from world import World

WIDTH = 1_000
"""Episodes that are played side by side."""
PATIENCE, MAX_EPOCHS, HELD_OUT, LEARNING_RATE = 10, 100, 0.2, 3e-4


@dataclass(frozen=True)
class Fitting:
    """What the paper's table of hyper-parameters says for vectors and for pictures."""

    batch: int
    clip: float


VECTORS, PICTURES = Fitting(32, 0.25), Fitting(256, 100.0)


def network(world: World) -> nn.Module:
    """f(a | x, x') for two observations side by side."""
    if world.pictures:
        return nn.Sequential(
            nn.Conv2d(2 * world.shape[2], 16, 8, 4),
            nn.ReLU(),
            nn.Conv2d(16, 32, 4, 2),
            nn.ReLU(),
            nn.Flatten(),
            nn.LazyLinear(world.num_actions),
        )
    return nn.Sequential(
        nn.Linear(2 * world.shape[0], 56),
        nn.ReLU(),
        nn.Linear(56, 56),
        nn.ReLU(),
        nn.Linear(56, world.num_actions),
    )


def inputs(before: np.ndarray, after: np.ndarray) -> torch.Tensor:
    """Both observations as the network wants them; pictures stay bytes, channels first."""
    both = torch.from_numpy(np.concatenate([before, after], axis=-1))
    return both if both.ndim == 2 else both.permute(0, 3, 1, 2).contiguous()


def scores(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """ln f up to a constant."""
    return model(x if x.dtype == torch.float32 else x.float().div_(255))


class Follower:
    """π so far: decode what happened, replay it on the map, act by the plan."""

    def __init__(self, world: World) -> None:
        self.world, self.models = world, []

    def roll(self, number: int, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """True states, last observations and returns after so many steps of fresh episodes."""
        world = self.world
        states = np.full(number, world.start)
        believed, seen, returns = states, world.observe(states), np.zeros(number)
        for h in range(steps):
            actions = world.plan[h][believed].astype(np.int64)
            states, rewards = world.step(states, actions, h)
            returns += rewards
            after = world.observe(states)
            if h < len(self.models):
                with torch.inference_mode():
                    decoded = scores(self.models[h], inputs(seen, after)).argmax(dim=1).numpy()
                believed = world.successor[believed, decoded]
            seen = after
        return states, seen, returns

    def explore(self, number: int, h: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Roll in for h steps, then a random action: what was seen around it, and the action."""
        found = []
        for first in range(0, number, WIDTH):
            states, seen, _ = self.roll(min(WIDTH, number - first), h)
            actions = self.world.rng.integers(self.world.num_actions, size=len(states))
            states, _ = self.world.step(states, actions, h)
            found.append((inputs(seen, self.world.observe(states)), torch.from_numpy(actions)))
        x, labels = zip(*found, strict=True)
        return torch.cat(x), torch.cat(labels)


def fit(model: nn.Module, x: torch.Tensor, labels: torch.Tensor, how: Fitting) -> int:
    """Maximum likelihood with early stopping; leaves the best epoch in place. Counts updates."""
    rows = len(x) - max(1, round(len(x) * HELD_OUT))
    optimiser = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    loss_of = nn.CrossEntropyLoss()
    best, best_loss, stale, updates = None, float("inf"), 0, 0
    for _ in range(MAX_EPOCHS):
        for chosen in torch.randperm(rows).split(how.batch):
            optimiser.zero_grad(set_to_none=True)
            loss_of(scores(model, x[chosen]), labels[chosen]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), how.clip)
            optimiser.step()
            updates += 1
        with torch.inference_mode():
            losses = [
                nn.functional.cross_entropy(scores(model, a), b, reduction="sum").item()
                for a, b in zip(x[rows:].split(WIDTH), labels[rows:].split(WIDTH), strict=True)
            ]
        loss = sum(losses)
        if loss < best_loss:
            best, best_loss, stale = _copied(model), loss, 0
        else:
            stale += 1
        if stale == PATIENCE:
            break
    model.load_state_dict(best)
    return updates


def _copied(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def warm_up() -> None:
    """The first optimiser imports for a second or two, which is not learning."""
    fit(nn.Linear(2, 2), torch.zeros(20, 2), torch.zeros(20, dtype=torch.long), VECTORS)


def learn(world: World, episodes: int, seconds: float) -> tuple[Follower, dict[str, float]]:
    """Algorithm 2 from line 4 on; what each part took in seconds of processor time."""
    started, wall = time.process_time(), time.perf_counter()
    follower, spent = Follower(world), {"collecting": 0.0, "fitting": 0.0, "updates": 0}
    model, how = network(world), PICTURES if world.pictures else VECTORS
    for h in range(world.horizon - 1):
        begin = time.process_time()
        x, labels = follower.explore(episodes // world.horizon, h)
        middle = time.process_time()
        if h == 0:
            scores(model, x[:1])  # gives a lazy layer its shape
        spent["updates"] += fit(model, x, labels, how)
        own = network(world)
        own.load_state_dict(model.state_dict())
        follower.models.append(own)
        spent["collecting"] += middle - begin
        spent["fitting"] += time.process_time() - middle
        if time.process_time() - started > seconds:
            break
    spent |= {
        "steps": len(follower.models),
        "processor": time.process_time() - started,
        "wall": time.perf_counter() - wall,
    }
    return follower, spent


def main() -> None:
    """Learn, then evaluate by 10 000 fresh episodes, which are not timed."""
    tables, episodes, seed, threads, *most = sys.argv[1:]
    torch.set_num_threads(int(threads))
    torch.manual_seed(int(seed))
    world = World(tables, int(seed))
    warm_up()
    follower, spent = learn(world, int(episodes), float(most[0]) if most else float("inf"))
    finished = spent["steps"] == world.horizon - 1
    value = np.concatenate([follower.roll(WIDTH, world.horizon)[2] for _ in range(10)]).mean()
    ratio = value / world.robust_value if finished else None
    print(json.dumps({**spent, "ratio": ratio}))


if __name__ == "__main__":
    main()
