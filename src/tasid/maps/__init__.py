"""What is known: finite worlds without observations."""

from tasid.maps.planning.evaluation import Certificate as Certificate
from tasid.maps.planning.evaluation import best_case_value as best_case_value
from tasid.maps.planning.evaluation import blind_value as blind_value
from tasid.maps.planning.evaluation import certify as certify
from tasid.maps.planning.evaluation import policy_value as policy_value
from tasid.maps.planning.evaluation import return_range as return_range
from tasid.maps.planning.evaluation import worst_case as worst_case
from tasid.maps.planning.evaluation import worst_case_value as worst_case_value
from tasid.maps.planning.perturbation import Membership as Membership
from tasid.maps.planning.perturbation import PerturbedMDP as PerturbedMDP
from tasid.maps.planning.perturbation import is_perturbation as is_perturbation
from tasid.maps.planning.perturbation import perturb as perturb
from tasid.maps.planning.robust_dp import RobustPlan as RobustPlan
from tasid.maps.planning.robust_dp import RouteStep as RouteStep
from tasid.maps.planning.robust_dp import robust_dp as robust_dp
from tasid.maps.planning.robust_dp import robust_plans as robust_plans
from tasid.maps.simulator import AbstractSimulator as AbstractSimulator
from tasid.maps.size import SimulatorError as SimulatorError
