"""What is proved: how many episodes suffice, and what a number of them guarantees."""

from tasid.theory.decoding import Budget as Budget
from tasid.theory.decoding import Reading as Reading
from tasid.theory.decoding import action_gap as action_gap
from tasid.theory.decoding import any_error_bound as any_error_bound
from tasid.theory.decoding import decoding_budget as decoding_budget
from tasid.theory.decoding import one_step_error_bound as one_step_error_bound
from tasid.theory.decoding import value_loss_bound as value_loss_bound
from tasid.theory.decoding import wrong_actions_bound as wrong_actions_bound
from tasid.theory.outcomes import Exploration as Exploration
from tasid.theory.outcomes import outcome_gap as outcome_gap
from tasid.theory.setting import Setting as Setting
from tasid.theory.starts import StartBudget as StartBudget
from tasid.theory.starts import StartReading as StartReading
from tasid.theory.starts import StartSetting as StartSetting
from tasid.theory.starts import cluster_samples as cluster_samples
from tasid.theory.starts import pair_confusion_bound as pair_confusion_bound
from tasid.theory.starts import purity_bound as purity_bound
from tasid.theory.starts import regression_error as regression_error
from tasid.theory.starts import regression_error_limit as regression_error_limit
from tasid.theory.starts import start_budget as start_budget
