"""What is proved: how many episodes suffice, and what a number of them guarantees."""

from tasid.theory.decoding import (
    Budget,
    Reading,
    action_gap,
    any_error_bound,
    decoding_budget,
    guaranteed_epsilon,
    one_step_error_bound,
    value_loss_bound,
    wrong_actions_bound,
)
from tasid.theory.outcomes import (
    Exploration,
    OutcomeBudget,
    outcome_budget,
    outcome_error_bound,
    outcome_factor,
    outcome_gap,
    outcome_value_loss_bound,
)
from tasid.theory.setting import Setting
from tasid.theory.starts import (
    StartBudget,
    StartReading,
    StartSetting,
    cluster_samples,
    pair_confusion_bound,
    purity_bound,
    regression_error,
    regression_error_limit,
    start_budget,
)

__all__ = [
    "Setting",
    "Budget",
    "Reading",
    "decoding_budget",
    "guaranteed_epsilon",
    "action_gap",
    "one_step_error_bound",
    "wrong_actions_bound",
    "any_error_bound",
    "value_loss_bound",
    "Exploration",
    "OutcomeBudget",
    "outcome_budget",
    "outcome_error_bound",
    "outcome_factor",
    "outcome_gap",
    "outcome_value_loss_bound",
    "StartSetting",
    "StartBudget",
    "StartReading",
    "start_budget",
    "cluster_samples",
    "regression_error",
    "regression_error_limit",
    "pair_confusion_bound",
    "purity_bound",
]
