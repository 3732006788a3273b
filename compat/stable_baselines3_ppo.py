"""Stable-Baselines3's PPO, unchanged, on our Gymnasium ids; any trouble is a non-zero exit code."""

from __future__ import annotations

import sys
import time
import warnings

import gymnasium
from gymnasium.utils.env_checker import check_env as gymnasium_check
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env as sb3_check
from stable_baselines3.common.evaluation import evaluate_policy

import tasid  # registers the ids

SETTINGS = {
    "tasid/CombinationLock-v0": ("MlpPolicy", {"horizon": 5, "num_actions": 4}, 8_192),
    "tasid/LavaCrossing-v0": ("CnnPolicy", {}, 2_048),
}


def main() -> None:
    """Check and train on each id; say how long it took and what was earned."""
    print(f"tasid {tasid.__version__}, gymnasium {gymnasium.__version__}")
    for name, (policy, options, steps) in SETTINGS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            gymnasium_check(gymnasium.make(name, render_mode="rgb_array", **options).unwrapped)
        sb3_check(gymnasium.make(name, **options))
        started = time.perf_counter()
        env = gymnasium.make(name, **options)
        model = PPO(policy, env, n_steps=512, seed=0, device="cpu")
        before, _ = evaluate_policy(model, model.get_env(), n_eval_episodes=50)
        model.learn(steps)
        after, _ = evaluate_policy(model, model.get_env(), n_eval_episodes=50)
        seconds = time.perf_counter() - started
        print(f"{name}: {steps} steps of PPO in {seconds:.0f} s, return {before:.2f} → {after:.2f}")
        if model.num_timesteps < steps:
            sys.exit(f"{name}: PPO stopped after {model.num_timesteps} steps")


if __name__ == "__main__":
    main()
