"""How clients train in a given global round: the run's configuration with the step size of that round."""

from fedge.config.sections.train import TrainConfig
from fedge.tasks.chosen import task_of
from fedge.training.optimizers import SGD
from fedge.training.settings import LocalTraining


def local_training(config: TrainConfig, global_round: int) -> LocalTraining:
    """Return the settings of local training in a global round (1, 2, …); lr decays by a factor per round.

    η_r = η · γ^(r − 1), r the global round.

    >>> from fedge.config.sections.train import TrainConfig
    >>> [round(local_training(TrainConfig(lr=0.1, lr_decay=0.5), r).lr, 4) for r in (1, 2, 3)]
    [0.1, 0.05, 0.025]
    """
    return LocalTraining(
        lr=config.lr * config.lr_decay ** (global_round - 1),
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        clip_norm=config.clip_norm,
        label_smoothing=config.label_smoothing,
        epochs=config.local_epochs,
        batch_size=config.batch_size,
        prox_mu=config.prox_mu,
        threads=config.threads,
        kernel=step_kernel(config),
        precision=config.precision,
        cuda_graph=config.cuda_graph == "auto",
        optimizer=config.optimizer,
        task=task_of(config),
    )


def step_kernel(config: TrainConfig) -> str:
    """Return what is to compute steps: `train.kernel`, or PyTorch for what the native step does not do."""
    return config.kernel if config.processes == 1 and config.optimizer == SGD else "torch"
