"""Settings of clients' training in a global round: the run's configuration with this round's step size."""

from collections.abc import Iterable

from fedge.config.registers.parts import SGD
from fedge.config.sections.train import TrainConfig
from fedge.tasks.configured import task_of
from fedge.training.augmentation import augment_of
from fedge.training.passes import mean_steps
from fedge.training.settings import LocalTraining, optimizer_arguments
from fedge.training.step_sizes import step_size


def local_training(config: TrainConfig, global_round: int, steps: int = 0, kernel: str = "") -> LocalTraining:
    """The settings of local training in a global round (1, 2, …), with this round's step size.

    Args:
        config: configuration of the run.
        global_round: 1, 2, …
        steps: number of steps, in place of epochs; 0 for epochs.
        kernel: kernel of the run; see `step_kernel`.

    >>> from fedge.config.sections.train import TrainConfig
    >>> [round(local_training(TrainConfig(lr=0.1, lr_decay=0.5), r).lr, 4) for r in (1, 2, 3)]
    [0.1, 0.05, 0.025]
    """
    return LocalTraining(
        lr=step_size(config, global_round),
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        clip_norm=config.clip_norm,
        label_smoothing=config.label_smoothing,
        epochs=config.local_epochs,
        steps=steps,
        batch_size=config.batch_size,
        prox_mu=config.prox_mu,
        threads=config.threads,
        kernel=step_kernel(config, kernel),
        precision=config.precision,
        cuda_graph=config.cuda_graph == "auto",
        optimizer=config.optimizer,
        optimizer_args=optimizer_arguments(config),
        task=task_of(config),
        augment=augment_of(config),
    )


def local_steps(config: TrainConfig, windows: Iterable[int]) -> int:
    """Every client's steps in a leaf round in place of epochs; 0 for epochs.

    Args:
        config: configuration of the run.
        windows: training windows of all training clients.
    """
    if isinstance(config.local_steps, int):
        return config.local_steps
    return mean_steps(windows, config.batch_size, config.local_epochs)


def step_kernel(config: TrainConfig, run_kernel: str = "") -> str:
    """Kernel of the steps: `train.kernel`, or PyTorch for models unsupported by the native step.

    Args:
        config: configuration of the run.
        run_kernel: kernel of all processes of the run, in place of `train.kernel`; empty if not known.
    """
    return run_kernel or config.kernel if config.processes == 1 and config.optimizer == SGD else "torch"
