"""PPO of Stable-Baselines3, unchanged, on our Gymnasium environments; errors end with a code."""

import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy

import tasid

SETTINGS = {
    "tasid/CombinationLock-v0": ("MlpPolicy", {"horizon": 5, "num_actions": 4}, 8_192),
    "tasid/LavaCrossing-v0": ("CnnPolicy", {}, 2_048),
}


def main() -> None:
    """Check each environment with SB3's checker and train on it."""
    print(f"tasid {tasid.__version__}, gymnasium {gymnasium.__version__}")
    for name, (policy, options, steps) in SETTINGS.items():
        env = gymnasium.make(name, **options)
        check_env(env.unwrapped)
        model = PPO(policy, env, n_steps=512, seed=0, device="cpu")
        before, _ = evaluate_policy(model, model.get_env(), n_eval_episodes=50)
        model.learn(steps)
        after, _ = evaluate_policy(model, model.get_env(), n_eval_episodes=50)
        print(f"{name}: {steps} steps of PPO, mean return {before:.2f} → {after:.2f}")


if __name__ == "__main__":
    main()
