"""Resuming: the run, its checkpoint, and checks for unchanged configuration, data and seed.

Loads no torch.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedge.config.config import Config
from fedge.config.flat import options, to_run_config
from fedge.config.registers.option import ConfigError, Scalar, shown
from fedge.config.sections.guard import BEST, CheckpointConfig
from fedge.config.sections.hierarchy import OF_TREE
from fedge.data.own_windows import WindowsReport
from fedge.privacy.noise import SYSTEM
from fedge.records.folder import find_run, resume_command, short
from fedge.records.foreign_folder import refuse_foreign_files, refuse_inaccessible, refuse_links
from fedge.records.manifest import RunFolderError, invalid_entries, read_manifest
from fedge.records.outputs import CLUSTERS, CONFUSION, MODELS, damaged_outputs, has_checksum, is_kept_model
from fedge.records.private_file import places_of
from fedge.records.tables.catalog import ROUND_TABLES
from fedge.records.tables.device_tables import GROWING
from fedge.records.tables.model_tables import CLIENT_MODELS, COMMON_TEST, MEMBERSHIPS
from fedge.run.preparation.starts import described_start
from fedge.run.preparation.traces import described_traces
from fedge.states.checkpoint import (
    FOLDER,
    IN_USE,
    Checkpoint,
    CheckpointError,
    newest_valid_checkpoint,
    refusing_impossible_values,
)

# Options allowed to differ between a run and its continuation, because no result depends on them:
_PLACES = frozenset({"run-name", "runs-dir", "resume", "report"})
# compared by seed in force, clients of each leaf, fingerprints of data and initial weights
_COMPARED_OTHERWISE = frozenset({"seed", "clients", "data.path", "train.start"})
_TUNING = frozenset(
    {
        "num-server-rounds", "guard.start-timeout", "guard.start-clients", "guard.client-timeout",
        "guard.return-timeout", "guard.stall-timeout", "transfer.share-above-mb", "transfer.spill-above-mb",
        "tracker", "checkpoint.every", "checkpoint.keep", "checkpoint.models",
    }
)  # fmt: skip
ENDING = frozenset({"callbacks", "callbacks-args"})  # these decide after which round a run ends
# entries of a run's manifest required for resuming
_NEEDED = ("config", "seed", "versions", "clients_per_leaf", "data")
CHANGEABLE = _PLACES | _COMPARED_OTHERWISE | _TUNING | ENDING
_LONGEST = 200  # characters of a value in a message


@dataclass(frozen=True)
class Resumption:
    """A run to resume.

    Attributes:
        folder: the run folder.
        checkpoint: the checkpoint to resume from.
        notes: damage found, one line each.
        manifest: the run's manifest as it was left.
        lost: tables to start again and kept models to remove, because their contents have changed.
    """

    folder: Path
    checkpoint: Checkpoint
    notes: list[str]
    manifest: dict[str, Any] = field(repr=False)
    lost: frozenset[str] = frozenset()

    @property
    def offsets(self) -> dict[str, int]:
        """Table → bytes to keep."""
        sizes: Mapping[str, int] = self.checkpoint.facts["offsets"]
        return {name: size for name, size in sizes.items() if name not in self.lost}

    @property
    def kept(self) -> dict[str, str]:
        """File of kept models → its sha256, for those unchanged since the checkpoint."""
        return {
            name: sha256
            for name, sha256 in _kept_model_checksums(self.checkpoint).items()
            if name not in self.lost
        }

    @property
    def reports(self) -> dict[int, WindowsReport] | None:
        """Partition id → the owner's description of its windows; None if the server dealt the windows.

        Raises:
            ConfigError: the descriptions in the checkpoint are damaged.
        """
        texts = self.checkpoint.facts.get("told")
        if texts is None:
            return None
        with refusing_impossible_values(self.checkpoint.folder, IN_USE):
            return {int(client): WindowsReport.of_text(text) for client, text in texts.items()}

    @property
    def run(self) -> Mapping[str, Any]:
        """The run's manifest at the checkpoint."""
        described: Mapping[str, Any] = self.checkpoint.facts["run"]
        return described

    def is_complete(self, config: Config) -> bool:
        """Whether nothing is left to do: the run ended as planned, and all results are intact."""
        return (
            self.manifest.get("status") in ("completed", "partial")
            and (self.checkpoint.global_round == config.num_server_rounds or self._has_stopped(config))
            and not damaged_outputs(self.folder, self.manifest)
            and (self.folder / MODELS).is_file()
        )

    def _has_stopped(self, config: Config) -> bool:
        """Whether a callback stopped the run, and the callbacks are still the same."""
        before, now = self.manifest.get("config", {}), to_run_config(config)
        return "stopped" in self.manifest and all(now[key] == before.get(key) for key in ENDING)

    def resumed_manifest(
        self, config: Config, engine: str, versions: Mapping[str, str], now: str
    ) -> dict[str, Any]:
        """Manifest of the resumed run: the checkpoint's, with one more entry in `resumed`."""
        overrides = {key: value for key, value in to_run_config(config).items() if key in _TUNING | ENDING}
        entry = {"when": now, "after_round": self.checkpoint.global_round, "engine": engine}
        changed = {
            name: [before, versions.get(name)]
            for name, before in self.run["versions"].items()
            if versions.get(name) != before
        }
        if changed:
            entry["versions_changed"] = changed
        return {
            **self.run,
            "status": "running",
            "config": {**self.run["config"], **overrides},
            "resumed": [*self.manifest.get("resumed", []), entry],
        }


def find_resumption(config: Config, seed: int) -> Resumption:
    """The run named by `config.resume`, with its newest intact checkpoint.

    Raises:
        ConfigError: there is no such run, it has no intact checkpoint, or configuration or seed differ.
    """
    resumption = open_resumption(find_run(config.resume, config.runs_dir, "resume"))
    _refuse_other_config(resumption, config, seed)
    _refuse_other_start(resumption, config)
    _refuse_other_traces(resumption, config)
    _refuse_other_noise(resumption, config)
    _refuse_system_noise(resumption, config)
    _refuse_models_of_past_rounds(resumption, config)
    completed = resumption.checkpoint.global_round
    if completed > config.num_server_rounds:
        raise ConfigError(
            f"num-server-rounds must be at least {completed}, the rounds that {short(resumption.folder)} has "
            f"done, but is {config.num_server_rounds}; raise it"
        )
    return resumption


def open_resumption(folder: Path) -> Resumption:
    """The run in `folder`, with its newest intact checkpoint.

    Raises:
        ConfigError: there is none, or the folder contains links leading elsewhere.
    """
    refuse_links(folder)
    refuse_foreign_files(folder)
    refuse_inaccessible(folder)
    checkpoint, damaged = _newest_fitting_checkpoint(folder, _confusion_is_due)
    if checkpoint is None and damaged:
        checkpoint, damaged = _newest_fitting_checkpoint(folder, lambda *_: False)
    if checkpoint is None:
        reasons = "; ".join(map(str, damaged)) or (
            "it was stopped before the first, checkpoint.every is 0, or it is not a run"
        )
        raise ConfigError(
            f"resume needs an intact checkpoint, but {short(folder)} has none: {reasons}; start a new run"
        )
    manifest = _manifest(folder) or dict(checkpoint.facts["run"])
    dropped = frozenset(_table_faults(folder, checkpoint, _kept_model_checksums(checkpoint)))
    restarted = frozenset(
        _table_faults(folder, checkpoint, [table.path for table in ROUND_TABLES if table.optional])
    )
    notes = [f"{error}; resuming from round {checkpoint.global_round}" for error in damaged]
    notes += [f"{name} is not what was written; it is restarted" for name in sorted(restarted)]
    notes += [
        f"{name} is not from round {checkpoint.global_round} or before; it is dropped"
        for name in sorted(dropped)
    ]
    notes += _changed_options(manifest, checkpoint)
    if manifest.get("status") in ("completed", "partial"):
        damage = damaged_outputs(folder, manifest)
        notes += [
            f"{problem}; it is written again" for problem in damage if not is_kept_model(problem.split()[0])
        ]
    return Resumption(folder, checkpoint, notes, manifest, restarted | dropped)


def _changed_options(manifest: Mapping[str, Any], checkpoint: Checkpoint) -> list[str]:
    """A line if the options in the run's manifest differ from those in its checkpoint, which are used."""
    now, then = manifest.get("config", {}), checkpoint.facts["run"]["config"]
    changed = [
        key for key in sorted((now.keys() | then.keys()) - CHANGEABLE) if now.get(key) != then.get(key)
    ]
    if not changed:
        return []
    changes = (
        f"{len(changed)} options, {changed[0]} among them, are" if len(changed) > 1 else f"{changed[0]} is"
    )
    return [f"{changes} not what the run began with in manifest.json; the checkpoint's are used"]


def resume_obstacle(folder: Path) -> str:
    """Reason why the run in `folder` cannot be resumed; empty if it can."""
    try:
        open_resumption(folder)
    except ConfigError as error:
        return str(error)
    return ""


def _kept_model_checksums(checkpoint: Checkpoint) -> dict[str, str]:
    """File of kept models → its sha256 at a checkpoint."""
    return {
        name: sha256 for name, sha256 in checkpoint.facts.get("sha256", {}).items() if is_kept_model(name)
    }


def is_unchanged(resumption: Resumption) -> bool:
    """Whether a run is unchanged since it was found; resuming changes the manifest."""
    return _manifest(resumption.folder) == resumption.manifest


def _newest_fitting_checkpoint(
    folder: Path, confusion_is_due: Callable[[Path, Checkpoint], bool]
) -> tuple[Checkpoint | None, list[CheckpointError]]:
    """The newest intact checkpoint the tables still fit, and the faults of newer checkpoints.

    Args:
        folder: the run folder.
        confusion_is_due: (folder, checkpoint) → whether the confusion matrices must be those of the
            checkpoint, because no further round would replace them.
    """
    checkpoint, damaged = newest_valid_checkpoint(folder / FOLDER)
    while checkpoint is not None:
        other_tables = (*GROWING, CLIENT_MODELS, MEMBERSHIPS, COMMON_TEST)
        needed = [table.path for table in (*ROUND_TABLES, *other_tables) if not table.optional] + [CLUSTERS]
        if not _invalid_facts(checkpoint) and confusion_is_due(folder, checkpoint):
            needed.append(CONFUSION)
        misfits = _invalid_facts(checkpoint) or _table_faults(folder, checkpoint, needed)
        if not misfits:
            return checkpoint, damaged
        damaged.append(
            CheckpointError(f"checkpoint {checkpoint.folder} does not fit: {'; '.join(misfits.values())}")
        )
        checkpoint, newly_damaged = newest_valid_checkpoint(folder / FOLDER, before=checkpoint.global_round)
        damaged += newly_damaged
    return None, damaged


def _invalid_facts(checkpoint: Checkpoint) -> dict[str, str]:
    """Fact → its fault, for facts of a checkpoint Fedge cannot have written."""
    facts, faults = checkpoint.facts, {}
    run = facts.get("run")
    odd = invalid_entries(run, _NEEDED) if isinstance(run, dict) else ["run"]
    if odd:
        faults["run"] = f"its copy of the manifest is invalid in {', '.join(map(shown, odd[:3]))}"
    kinds = {"offsets": int, "sha256": str}
    for name, kind in kinds.items():
        table = facts.get(name, {})
        if not isinstance(table, dict) or not all(type(value) is kind for value in table.values()):
            faults[name] = f"{name} are not as they were written"
    for name in ("strategy", "remarks", "callbacks", "told"):
        if not isinstance(facts.get(name, {}), dict):
            faults[name] = f"{name} is not what was written"
    return faults


def _table_faults(folder: Path, checkpoint: Checkpoint, names: Iterable[str]) -> dict[str, str]:
    """Table → its fault, for tables differing from the checkpoint's."""
    sizes, sums = checkpoint.facts["offsets"], checkpoint.facts.get("sha256", {})
    faults = {}
    for name in names:
        path, size = folder / name, sizes.get(name, 0)
        size_now = path.stat().st_size if path.is_file() else 0
        if size_now < size:
            faults[name] = f"{name} has {size_now} bytes, but had {size}"
        elif name in sums and not has_checksum(path, sums[name], sizes.get(name)):
            faults[name] = f"{name} is not what was written"
    return faults


def _confusion_is_due(folder: Path, checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint is of the run's last round."""
    manifest = _manifest(folder) or checkpoint.facts["run"]
    return bool(manifest.get("config", {}).get("num-server-rounds") == checkpoint.global_round)


def _manifest(folder: Path) -> dict[str, Any] | None:
    """The run's manifest; None if it cannot be read (the checkpoint has a copy)."""
    try:
        return read_manifest(folder)
    except RunFolderError:
        return None


def _refuse_other_config(resumption: Resumption, config: Config, seed: int) -> None:
    """Raise ConfigError naming every differing option, and the seed if it differs."""
    differing = config_differences(resumption.run["config"], config)
    if seed != resumption.run["seed"]:
        differing.append(f"seed is {seed}, was {resumption.run['seed']}")
    if differing:
        raise ConfigError(
            f"resume needs the options of {short(resumption.folder)}, but {'; '.join(differing)}; "
            f"give the same values, as {resume_command(resumption.folder)} does"
        )


def _refuse_other_noise(resumption: Resumption, config: Config) -> None:
    """Raise ConfigError for a private run whose checkpoint lacks `releases`, of an older noise mechanism."""
    rounds = resumption.checkpoint.facts.get("strategy", {"releases": 0})  # the virtual clock counts buffers
    if config.privacy.kind != "off" and "releases" not in rounds:
        raise ConfigError(
            f"resume needs the noise mechanism that the run began with, but {short(resumption.folder)} is of "
            f"an earlier Fedge with another one; start a new run"
        )


def _refuse_other_start(resumption: Resumption, config: Config) -> None:
    """Raise ConfigError if the file of initial weights has changed since the run began."""
    if described_start(config.train) != resumption.run.get("start", ""):
        raise ConfigError(
            f"train.start must be the file that {short(resumption.folder)} began with, but it is "
            f"{shown(config.train.start)} with other content; restore that file, or start a new run"
        )


def _refuse_other_traces(resumption: Resumption, config: Config) -> None:
    """Raise ConfigError if a file of the fleet has changed since the run began."""
    before, now = resumption.run.get("traces", {}), described_traces(config)
    for option in sorted(before):
        if now.get(option) != before[option]:
            raise ConfigError(
                f"{option} must be the file that {short(resumption.folder)} began with, but "
                f"{'it is missing' if option not in now else 'it has changed'}; restore that file, or "
                f"start a new run"
            )


def _refuse_models_of_past_rounds(resumption: Resumption, config: Config) -> None:
    """Raise ConfigError for newly requested models of rounds already done."""
    before = CheckpointConfig(models=resumption.run["config"].get("checkpoint.models", ""))
    requested, completed = config.checkpoint, resumption.checkpoint.global_round
    too_late = [str(number) for number in sorted(requested.rounds - before.rounds) if number <= completed]
    too_late += [BEST] * (requested.keeps_best and not before.keeps_best and completed > 0)
    if too_late:
        raise ConfigError(
            f"checkpoint.models cannot name {too_late[0]} now, since {short(resumption.folder)} has done "
            f"{completed} rounds without keeping it; remove it, or start a new run"
        )


def _refuse_system_noise(resumption: Resumption, config: Config) -> None:
    """Raise ConfigError if repeated rounds would spend privacy again without being counted."""
    if config.privacy.kind != "off" and config.privacy.noise_source == SYSTEM:
        raise ConfigError(
            f"resume needs privacy.noise-source seed, because a round of {short(resumption.folder)} that is "
            f"done again draws new noise and spends privacy again, but it is {SYSTEM}; start a new run"
        )


def config_differences(
    before: Mapping[str, Any], config: Config, changeable: Collection[str] = CHANGEABLE
) -> list[str]:
    """Text "key is X, was Y" for each option that must be as in the manifest but differs."""
    defaults = {key: default for key, (default, _) in options().items()}
    now = to_run_config(config)
    return [
        f"{key} is {_format_value(now.get(key))}, was {_format_value(before.get(key, defaults.get(key)))}"
        for key in sorted(now.keys() | before.keys())
        if key not in changeable and now.get(key) != before.get(key, defaults.get(key))
    ]


def refuse_other_data(
    resumption: Resumption, fingerprint: str, clients_per_leaf: list[int], of_owners: bool = False
) -> None:
    """Raise ConfigError if windows or clients differ from the run's.

    Args:
        resumption: the run to resume.
        fingerprint: fingerprint of the windows.
        clients_per_leaf: number of clients of each leaf.
        of_owners: whether clients have described their own windows.
    """
    if clients_per_leaf != resumption.run["clients_per_leaf"]:
        raise ConfigError(
            f"resume needs the clients of {short(resumption.folder)}, but clients per leaf are "
            f"{clients_per_leaf}, were {resumption.run['clients_per_leaf']}; use a federation of "
            f"{sum(resumption.run['clients_per_leaf'])} SuperNodes"
        )
    previous, had_owners = resumption.run["data"], bool(resumption.checkpoint.facts.get("told"))
    if fingerprint != previous["fingerprint"]:
        fix = "set data.path to that file"
        if had_owners and not of_owners:
            fix = "clients had windows of their own: add --federation NAME, or --leaves HOST:PORT --owners"
        elif of_owners:
            fix = "start every client with the windows that it had" if had_owners else "add its data.path"
        raise ConfigError(
            f"resume needs the data of {short(resumption.folder)}, but their sha256 is "
            f"{fingerprint[:12]}…, was {previous['fingerprint'][:12]}… ({previous['name']}); {fix}"
        )


def run_config_of(resumption: Resumption) -> dict[str, Scalar]:
    """Run config for resuming a run unchanged, seed included.

    Options derived from a tree are omitted: Flower's engine takes only keys of pyproject.toml, which lacks
    them.
    """
    known_options = options()
    config = {key: value for key, value in resumption.run["config"].items() if key in known_options}
    if config.get("hierarchy.tree"):
        config = {key: value for key, value in config.items() if key not in OF_TREE}
    return {
        **config,
        **places_of(resumption.folder),
        "seed": resumption.run["seed"],
        "resume": str(resumption.folder),
    }


def _format_value(value: Any) -> str:
    """A value as in TOML, shortened if it is long; "nothing" for an option unknown to this version."""
    text = "nothing" if value is None else json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
