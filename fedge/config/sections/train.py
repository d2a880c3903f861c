"""Options of local training, and of SCAFFOLD."""

from dataclasses import dataclass

from fedge.config.registers import parts
from fedge.config.registers.option import KEYWORDS, Section, option


@dataclass(frozen=True)
class TrainConfig(Section):
    """Local training at a client."""

    SECTION = "train"
    model: str = option("cnn", "network; see docs/extend.md", register=parts.MODELS)
    model_args: str = option("", KEYWORDS, table=True)
    task: str = option("classification", "learning task; see docs/tasks.md", register=parts.TASKS)
    task_args: str = option("", KEYWORDS, table=True)
    loss: str = option(
        parts.OF_THE_TASK, "auto: the task's; or your own code: (answers, y) to a loss per example",
        register=parts.LOSSES,
    )  # fmt: skip
    loss_args: str = option("", KEYWORDS, table=True)
    metrics: str = option(
        "", "your own scores of the task's sums, separated by commas; each becomes a column",
        register=parts.METRICS, many=True,
    )  # fmt: skip
    augment: str = option(
        "",
        "random changes of training inputs, separated by commas; crop and flip: images; see docs/extend.md",
        register=parts.AUGMENTATIONS,
        many=True,
    )
    augment_args: str = option("", KEYWORDS, table=True)
    algorithm: str = option(
        "fedavg",
        "clients' algorithm, listed by `fedge methods`; see docs/own-method.md",
        register=parts.ALGORITHMS,
    )
    algorithm_args: str = option("", KEYWORDS, table=True)
    start: str = option(
        "",
        "safetensors file of initial weights; missing ones are drawn from the seed",
    )
    exchange: str = option(
        "all",
        "entries sent every round; trainable: frozen parameters are sent once",
        choices=("all", "trainable"),
    )
    optimizer: str = option(
        "sgd",
        'optimiser, fresh in every leaf round; others of PyTorch as "torch.optim:NAdam"',
        register=parts.OPTIMIZERS,
    )
    optimizer_args: str = option("", "its keyword arguments beside lr and weight-decay", table=True)
    lr: float = option(
        0.05, "step size in global round 1", above=0.0, maximum=1e6, also=("learning-rate", "step-size")
    )
    schedule: str = option(
        "exponential",
        "factor on lr by round; see docs/extend.md",
        register=parts.SCHEDULES,
    )
    schedule_args: str = option("", KEYWORDS, table=True)
    lr_decay: float = option(0.99, "factor on lr per global round", above=0.0, maximum=1.0)
    momentum: float = option(0.9, "SGD momentum", minimum=0.0, maximum=0.999)
    weight_decay: float = option(1e-4, "L2 penalty, added to the gradient", minimum=0.0, maximum=1e6)
    clip_norm: float = option(1.0, "largest L2 norm of a step's gradient; 0: off", minimum=0.0, maximum=1e30)
    label_smoothing: float = option(
        0.1, "share of the target spread over all classes", minimum=0.0, maximum=0.99
    )
    local_epochs: int = option(5, "passes over a client's training windows per leaf round", minimum=1)
    local_steps: int | str = option(
        0,
        "steps per leaf round instead of epochs, the same for every client; auto: those of "
        "train.local-epochs with the mean number of windows; 0: epochs",
        minimum=0,
        words=("auto",),
    )
    batch_size: int = option(32, "windows per step", minimum=1, also=("bs",))
    prox_mu: float = option(
        0.0,
        "FedProx: pull of a client to its leaf's model; 0: off",
        minimum=0.0,
        maximum=1e6,
        also=("mu", "proximal-mu"),
    )
    threads: int = option(
        1, "torch threads per client; another number gives other last bits", minimum=1, maximum=1024
    )
    processes: int = option(
        1,
        "processes per client, each on a share of every batch; see docs/clusters.md",
        minimum=1,
        maximum=64,
    )
    kernel: str = option(
        "auto",
        "steps on a CPU: PyTorch's, or the native step for supported models; auto: native if "
        "built; see docs/native.md",
        choices=("torch", "auto", "native"),
    )
    device: str = option(
        "auto",
        "auto: a GPU if the federation gives one; in process, the faster of cores and GPU; see docs/gpu.md",
        choices=("auto", "cpu", "cuda"),
        also=("gpu", "gpus"),
    )
    precision: str = option(
        "float32",
        "products in training; tf32: factors of 10 bits, on a GPU; bf16: of 8 bits, on a GPU "
        "and in the native step; see docs/gpu.md",
        choices=("float32", "tf32", "bf16"),
    )
    cuda_graph: str = option(
        "auto", "auto: on a GPU, long training is recorded as a graph and replayed", choices=("auto", "off")
    )


@dataclass(frozen=True)
class ScaffoldConfig(Section):
    """SCAFFOLD (Karimireddy et al. 2020) between a leaf and its clients, and between servers."""

    SECTION = "scaffold"
    enabled: bool = option(True, "control variates at every leaf")
    levels: int = option(
        1,
        "1: between leaf and clients; 2: also between leaves and the server above (MTGC); 3 "
        "and more: also above, in deeper trees",
        minimum=1,
    )
