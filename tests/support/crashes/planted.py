"""Defects to plant in Fedge: what a commit protocol, or what a checkpoint holds, can get wrong.

Each changes nothing of a run that nobody disturbs. They stand for kinds of defects: whoever makes one of them
in earnest is to be found by the sample of trials that runs with all tests.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace

POWER = ("names", "content", "zeros")


@dataclass(frozen=True)
class Defect:
    """A defect.

    Attributes:
        plant: puts it into this process.
        configuration: in whose run it is looked for first.
        kinds: of trials that are tried first; all by default.
        file: part of the kind of file at whose operations is tried first.
    """

    plant: Callable[[], None]
    configuration: str = "default"
    kinds: tuple[str, ...] = ()
    file: str = ""

    def is_likely(self, stratum):
        """Tell whether a trial of this stratum (kind, operation, file) is tried first."""
        at_its_file = self.file in stratum[-1] or "end" in stratum
        return (not self.kinds or stratum[0] in self.kinds) and at_its_file


DEFECTS = {}


def defect(name, **facts):
    """Note a function that plants a defect."""

    def note(plant):
        DEFECTS[name] = Defect(plant, **facts)
        return plant

    return note


def everywhere(original, new):
    """Put a function in the place of another in every module of Fedge that has it."""
    modules = [module for name, module in sys.modules.items() if name.startswith("fedge.")]
    places = [(m, name) for m in modules for name, value in vars(m).items() if value is original]
    assert places, original
    for module, name in places:
        setattr(module, name, new)


def changed(owner, name, make):
    """Replace an attribute by what `make` makes of it; who has no such attribute raises."""
    setattr(owner, name, make(getattr(owner, name)))


def put(owner, name, new):
    """Put something in the place of an attribute."""
    changed(owner, name, lambda _: new)


# --- what is synced, and when ---------------------------------------------------------------------------


@defect("nothing is synced", kinds=POWER)
def no_sync():
    from fedge.process import durable

    everywhere(durable.sync, lambda path: None)


@defect("names are not synced", kinds=("names",))
def no_sync_of_folders():
    from fedge.process import durable

    original = durable.sync
    everywhere(original, lambda path: None if path.is_dir() else original(path))


@defect("content is not synced", kinds=("content", "zeros"))
def no_sync_of_files():
    from fedge.process import durable

    original = durable.sync
    everywhere(original, lambda path: original(path) if path.is_dir() else None)


@defect("renamed before it is synced", kinds=("content", "zeros"), file="json")
def late_sync():
    from fedge.process import durable

    def commit(temporary, path):
        temporary.replace(path)
        durable.sync(path)
        durable.sync(path.parent)

    everywhere(durable.commit, commit)


@defect("tables are not synced with their checkpoint", kinds=POWER, file="checkpoints")
def tables_unsynced():
    from fedge.run import snapshot

    changed(snapshot, "write_checkpoint", lambda write: lambda *words, beside: write(*words))


@defect("a checkpoint is named before it is synced", kinds=("content", "zeros"), file="checkpoints")
def checkpoint_unsynced():
    from fedge.states import checkpoint

    def beside_only(work, paths):
        return [work(path) for path in paths if "checkpoints" not in path.parts]

    put(checkpoint, "in_threads", beside_only)


@defect("final models are not synced", kinds=POWER, file="final")
def models_unsynced():
    from fedge.records import recorder

    changed(
        recorder, "write_state", lambda write: lambda path, state, durably, **more: write(path, state, **more)
    )


@defect("a partition is not synced", kinds=POWER, file="partition")
def partition_unsynced():
    from fedge.records import recorder

    changed(recorder, "write_bytes", lambda write: lambda path, content: write(path, content, durably=False))


@defect("matrices are not synced", configuration="partial", kinds=POWER, file="confusion")
def confusion_unsynced():
    from fedge.records.outputs import CONFUSION
    from fedge.records.recorder import Recorder

    unsynced = Recorder.unsynced.fget
    Recorder.unsynced = property(lambda self: [p for p in unsynced(self) if p != self.folder / CONFUSION])


# --- in which order, and under which name -----------------------------------------------------------------


@defect("written in place", kinds=("kill", "torn"), file="manifest")
def in_place():
    from fedge.process import durable

    everywhere(durable.write_bytes, lambda path, content, durably=True: path.write_bytes(content))


@defect("a checkpoint is written under its name", kinds=("kill",), file="checkpoints")
def checkpoint_in_place():
    from fedge.process.durable import sync
    from fedge.run import snapshot
    from fedge.states import checkpoint

    def write(parent, global_round, groups, facts, beside=()):
        folder = parent / f"round-{global_round:06d}"
        folder.mkdir(parents=True)
        files = {g: checkpoint._write_group(folder, g, states) for g, states in groups.items() if states}
        content = {"format": checkpoint._FORMAT, "round": global_round, "files": files, "facts": facts}
        (folder / checkpoint.MANIFEST).write_bytes(checkpoint._manifest_bytes(content))
        for path in [*beside, *folder.iterdir(), folder, parent]:
            sync(path)

    put(snapshot, "write_checkpoint", write)


@defect("old checkpoints go before the new one is there", kinds=("kill",), file="checkpoints")
def checkpoint_gone():
    from fedge.run import snapshot
    from fedge.states.checkpoint import remove_all

    write = snapshot.write_checkpoint

    def forget_and_write(parent, *words, **more):
        remove_all(parent)
        return write(parent, *words, **more)

    put(snapshot, "write_checkpoint", forget_and_write)


@defect("rows come after their checkpoint", kinds=("kill",), file="metrics")
def late_rows():
    from fedge.run.carry_out import Steps

    def on_round(self, result, laps):
        self._snapshots.after(result.global_round, self._announcer.table)
        self._announcer.round(result, laps)

    put(Steps, "_on_round", on_round)


@defect("completed before the models are written", kinds=("kill",), file="final")
def early_end():
    from fedge.records.recorder import Recorder

    write, end, late = Recorder.write_models, Recorder.end, []
    Recorder.write_models = lambda self, *models: late.append((self, *models))

    def end_and_write(self, *words, **more):
        ended = end(self, *words, **more)
        while late:
            write(*late.pop())
        return ended

    Recorder.end = end_and_write


@defect("what interrupted writes left stays", kinds=("kill",), file="checkpoints")
def leftovers():
    from fedge.states import checkpoint

    put(checkpoint, "_UNFINISHED", ".none-*")


# --- what is kept, and what errors do ---------------------------------------------------------------------


@defect("tables are not cut when a run goes on", kinds=("kill", "torn"), file="checkpoints")
def tables_uncut():
    import os

    from fedge.records.tables import growing_file

    put(growing_file, "os", SimpleNamespace(truncate=lambda *_: None, fstat=os.fstat))


@defect("a write that failed is passed over", kinds=("eio", "full"), file="partition")
def errors_passed_over():
    from fedge.records.recorder import Recorder

    def make(write):
        def write_or_not(self, *words):
            with suppress(OSError):
                write(self, *words)

        return write_or_not

    for name in ("write_partition", "write_models"):
        changed(Recorder, name, make)


@defect("an error is a traceback", kinds=("eio", "full"), file="metrics")
def errors_unexplained():
    from fedge.run import ending

    put(ending, "_ONE_LINE", ())
    put(ending, "_reason", lambda error: f"Traceback\n{error!r}")


@defect("clients' control variates are forgotten", configuration="levels2", kinds=("kill",))
def controls_forgotten():
    from fedge.rounds.strategy import HierarchicalStrategy

    put(HierarchicalStrategy, "restore_client_controls", lambda *_: None)


@defect("moments of a server optimiser are forgotten", configuration="fedadam", kinds=("kill",))
def moments_forgotten():
    from fedge.leaf.leaf import Leaf

    def make(restore):
        return lambda self, states, facts: restore(self, without_moments(states), facts)

    changed(Leaf, "restore", make)


def without_moments(states):
    """States without those of a strategy."""
    return {name: state for name, state in states.items() if not name.startswith("strategy")}


@defect("remarks are forgotten", configuration="fedge", kinds=("kill",))
def remarks_forgotten():
    from fedge.run.remarks import Remarks

    Remarks.restore = lambda self, facts: None


@defect("clusters are forgotten", configuration="partial", kinds=("kill",))
def labels_forgotten():
    from fedge.rounds.strategy import HierarchicalStrategy

    def make(restore):
        return lambda self, number, states, facts: restore(
            self, number, states, {**facts, "labels": [0] * len(facts["labels"])}
        )

    changed(HierarchicalStrategy, "restore", make)


@defect("releases are forgotten", configuration="dp", kinds=("kill",))
def releases_forgotten():
    from fedge.rounds.strategy import HierarchicalStrategy

    def make(restore):
        return lambda self, number, states, facts: restore(self, number, states, {**facts, "releases": 0})

    changed(HierarchicalStrategy, "restore", make)
