"""RunConfig: everything that determines a run, and what it stands for.

A run is a function of its config: `config.json` in the run folder holds it, `--config` reads that
or TOML, and the options of the command line are its fields. Relative paths are relative to the
working directory.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from inspect import signature
from pathlib import Path
from typing import Any, get_type_hints

from tasid.planning.perturbation import check_eta
from tasid.simulator import AbstractSimulator
from tasid.storage import ArtifactError, plain_json
from tasid.targets.base import Target
from tasid.targets.registry import ENVIRONMENTS, GYM, check_type, load_source, open_target

LEARNER_CONFIGS = {
    "belief": ("tasid.learning.belief", "BeliefConfig"),
    "paper": ("tasid.learning.paper", "TasidConfig"),
}
"""Module and name of the config of each method."""
DEFAULT_ETA = 0.1
"""η where the user gives none."""
TABLES = ("options", "map", "learner", "certificate")
"""Fields that are tables; `--set` reaches them by dotted keys, options also by bare keys."""
_LIMITS = {
    "seed": (0, 2**32 - 1),
    "env_seed": (0, 2**32 - 1),
    "horizon": (1, 10**6),
    "starts": (1, 10**6),
    "episodes": (1, 10**8),
    "evaluation_episodes": (1, 10**8),
}


class ConfigError(ValueError):
    """A value that no run can have."""


@dataclass(frozen=True)
class RunConfig:
    """A run: where to learn, on which map, how, and how to score the result."""

    environment: str | None = None
    """One of our environments, or gym:ID; None learns from a log and plays nowhere."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the environment's builder; of `tasid.wrap` and `gymnasium.make` for gym:ID."""
    simulator: str | None = None
    """The map: a file, a folder, gym:ID or an environment; None takes the environment's own."""
    map: Mapping[str, Any] = field(default_factory=dict)
    """Options of the map's source, such as `cell_size` of an occupancy map."""
    horizon: int | None = None
    """Steps per episode H; None is the environment's or the map's."""
    eta: float = DEFAULT_ETA
    """Perturbation level η. Our environments slip so."""
    method: str = "belief"
    """How to learn: belief or paper."""
    learner: Mapping[str, Any] = field(default_factory=dict)
    """Hyper-parameters: fields of `BeliefConfig` or `TasidConfig`."""
    episodes: int | str = "auto"
    """Episodes to learn from; "auto" stops by evidence."""
    starts: int | None = None
    """Number of start states; None takes those of the map."""
    seed: int = 0
    """Determines everything random, and the instance of our environments."""
    env_seed: int | None = None
    """The instance of our environments, if it is not that of `seed`."""
    from_policy: str | None = None
    """Folder of a policy, or of its run, to continue from."""
    log: str | None = None
    """Learn from this episode log instead of playing."""
    certify: bool = False
    """Bound the mean return of the learned policy from below, by fresh episodes."""
    certificate: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `tasid.certify_return`: epsilon, delta, max_episodes, attempt."""
    evaluation_episodes: int | None = None
    """Episodes of the final score; None is 10 000, or 1000 in gym:ID."""
    imports: Sequence[str] = ()
    """Python files or modules that are imported first, to register environments."""

    def __post_init__(self) -> None:
        hints = get_type_hints(RunConfig)
        for name, value in self.__dict__.items():
            if name in TABLES:
                if not isinstance(value, Mapping):
                    raise ConfigError(f"{name}: {value!r:.80} is not a table of options")
                plain_json(value, name)
            elif name == "imports":
                if isinstance(value, str) or not all(isinstance(text, str) for text in value):
                    raise ConfigError(f"imports: {value!r:.80} is not a list of files or modules")
                object.__setattr__(self, name, tuple(value))  # lists of JSON and TOML
            else:
                check_type(name, value, hints[name])
        for name, (low, high) in _LIMITS.items():
            value = getattr(self, name)
            if isinstance(value, int) and not low <= value <= high:
                raise ConfigError(f"{name}: {value} is not in {low} … {high}")
        if isinstance(self.episodes, str) and self.episodes != "auto":
            raise ConfigError(f"episodes: {self.episodes!r:.80} is neither a number nor 'auto'")
        check_eta(self.eta, decodable=True)
        if self.method not in LEARNER_CONFIGS:
            known = ", ".join(LEARNER_CONFIGS)
            raise ConfigError(f"method: {self.method!r:.80} is none of {known}")
        if self.environment is None and (self.log is None or self.certify):
            raise ConfigError("environment: missing; only learning from a log needs none")
        for name in ("method", "episodes", "starts", "from_policy") if self.log else ():
            value = getattr(self, name)
            if value != getattr(RunConfig, name):
                raise ConfigError(f"{name}: {value!r:.80}, but a log leaves no choice; drop it")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunConfig:
        """From what JSON or TOML hold; unknown fields are an error."""
        known = [spec.name for spec in fields(cls)]
        for name in values:
            if name not in known:
                raise ConfigError(f"{name}: not a field of a run; the fields: {', '.join(known)}")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """All fields in plain JSON types."""
        values: dict[str, Any] = plain_json(asdict(self), "config")
        return values

    @property
    def wrapped(self) -> bool:
        """Is it a Gymnasium environment, not one of ours?"""
        return self.environment is not None and self.environment.startswith(GYM)

    @property
    def default_folder(self) -> Path:
        """The run folder if the user names none."""
        name = self.environment or Path(str(self.log)).name + "-log"
        return Path("runs") / f"{name.replace('/', '-').replace(':', '-')}-seed{self.seed}"

    def learner_config(self) -> Any:
        """The learner's config with the fields of `learner`; None where none is set."""
        module, name = LEARNER_CONFIGS[self.method]
        kind = getattr(importlib.import_module(module), name)
        return _construct(kind, self.learner, "learner") if self.learner else None

    def build_target(self) -> Target:
        """The environment, which must be named."""
        name, options = str(self.environment), dict(self.options)
        if not self.wrapped:
            options = {
                "seed": self.seed if self.env_seed is None else self.env_seed,
                "eta": self.eta,
                **{k: getattr(self, k) for k in ("horizon", "starts") if getattr(self, k)},
                **options,
            }
        elif self.env_seed is not None:
            raise ConfigError(f"env_seed: {self.env_seed} with {name}; its episodes come from seed")
        return open_target(name, **options)

    def build_map(
        self, target: Target | None, header: Mapping[str, Any] | None = None
    ) -> AbstractSimulator:
        """The map; `header` is that of the log to learn from, if any."""
        header = header or {}
        if self.simulator is not None:
            options = dict(self.map)
            if self.simulator == self.environment and self.wrapped:
                # The environment is its own map, made with the same options but those of `wrap`.
                from tasid.targets.gymnasium_target import wrap

                own = signature(wrap).parameters
                options = {k: v for k, v in self.options.items() if k not in own} | options
            horizon = self.horizon or header.get("horizon")
            return load_source(self.simulator, horizon=horizon, **options)
        if target is not None and target.simulator is not None:
            return target.simulator
        recorded = header.get("environment") or {}
        if target is None and recorded.get("name") in ENVIRONMENTS:
            return load_source(recorded["name"], **recorded["options"])
        name = self.environment or "the log"
        raise ConfigError(f"simulator: {name} has no map of its own; name one: --simulator SOURCE")


def import_modules(names: Sequence[str]) -> None:
    """Import Python files and modules of the user, say to register environments."""
    for name in names:
        file = Path(name)
        is_file = file.suffix == ".py"
        try:
            if is_file and not file.is_file():
                raise FileNotFoundError("no such file")
            if is_file and str(file.resolve().parent) not in sys.path:
                sys.path.append(str(file.resolve().parent))  # last, so that it hides nothing
            importlib.import_module(file.stem if is_file else name)
        except Exception as error:  # the user's code runs here
            raise ConfigError(f"imports: {name}: {type(error).__name__}: {error}") from error


def read_config(path: Path) -> dict[str, Any]:
    """Fields of a config in a TOML file, or in the `config.json` of a run."""
    try:
        text = path.read_text(encoding="utf-8")
        fields: dict[str, Any] = (json if path.suffix == ".json" else tomllib).loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"config: {path}: {error}") from None
    return fields


def _construct(kind: Any, values: Mapping[str, Any], where: str) -> Any:
    """A config dataclass, with nested ones, from what JSON or TOML hold."""
    hints, parts = get_type_hints(kind), {}
    for name, value in values.items():
        if name not in hints:
            raise ConfigError(f"{where}.{name}: unknown; {where} has the fields {', '.join(hints)}")
        if is_dataclass(hints[name]) and isinstance(value, Mapping):
            value = _construct(hints[name], value, f"{where}.{name}")
        check_type(f"{where}.{name}", value, hints[name])
        parts[name] = tuple(value) if isinstance(value, list) else value
    return kind(**parts)


def parse_value(text: str) -> Any:
    """Value of KEY=VALUE: true or false, a finite TOML value, numbers x,y,… as a list, or text.

    The last of the numbers may be a heading: 1.5,-2,N.
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    with contextlib.suppress(ArtifactError, tomllib.TOMLDecodeError):  # dates, nan and inf are text
        return plain_json(tomllib.loads(f"value = {text}")["value"], "value")
    *numbers, last = (part.strip() for part in text.split(","))
    with contextlib.suppress(ValueError):
        head: list[Any] = [float(part) for part in numbers]
        return [*head, last if last.isalpha() else float(last)] if head else text
    return text
