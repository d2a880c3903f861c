"""A leaf's strategy with central differential privacy: the mean of clipped updates, with noise.

The computations are in `fedge.privacy.mechanism`, the guarantees in docs/privacy.md.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from fedge.config.registers.option import shown
from fedge.config.sections.privacy import PrivacyConfig
from fedge.exchange.train import KEY_CLIPPING_NORM, TrainReply
from fedge.privacy.mechanism import count_std, is_clip_norm, next_clip_norm, released_mean, update_multiplier
from fedge.privacy.noise import normals
from fedge.states.averaging import State


class PrivateMean(FedAvg):
    """FedAvg of clipped updates with equal weights, divided by the number of clients asked, plus noise.

    The noise is Gaussian. The leaf clips every update, so the noise suffices even if clients fail to clip.

    Attributes:
        clip_norm: C of the next leaf round; changes if the norm is adaptive.
        asked: n, the number of clients asked in a leaf round, with or without a reply.
    """

    def __init__(self, config: PrivacyConfig, asked: int) -> None:
        """Start with the configured norm; `asked` clients train in a leaf round."""
        super().__init__(fraction_train=1.0, min_train_nodes=1, min_available_nodes=1)
        self.clip_norm = config.clip_norm
        self.asked = asked
        self._config = config

    def refuse_numbers(self, numbers: Mapping[str, Any]) -> None:
        """Raise ValueError for a clipping norm this strategy cannot have reached."""
        norm, first = numbers.get("clip_norm"), self._config.clip_norm
        if norm != first and not (self._config.is_adaptive and is_clip_norm(norm)):
            raise ValueError(f"'clip_norm' cannot be {shown(norm)} after {self.clip_norm:g}")

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on each number of the next mean."""
        config = self._config
        multiplier = config.noise_multiplier
        if config.is_adaptive:
            multiplier = update_multiplier(multiplier, count_std(self.asked, multiplier))
        return multiplier * self.clip_norm / self.asked

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """FedAvg's messages, with the clipping norm for clients that clip."""
        if self._config.kind.startswith("client"):
            config = ConfigRecord({**config, KEY_CLIPPING_NORM: self.clip_norm})
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Refuse, because FedAvg's mean would lack the noise; `released` makes the leaf's model."""
        raise NotImplementedError("a private mean is made by PrivateMean.released")

    def released(
        self,
        model: State,
        replies: Sequence[TrainReply],
        seed: int,
        stream_key: tuple[int, ...],
        sent: Collection[str] | None = None,
    ) -> State:
        """The leaf's new model; an adaptive norm is updated.

        Args:
            model: the leaf's model at the start of the round.
            replies: accepted replies, at most `asked`.
            seed: seed of the run.
            stream_key: coordinates of the noise's random stream: leaf round, leaf and so on.
            sent: entries of the model sent by clients; None for all.
        """
        config, clip_norm = self._config, self.clip_norm
        rng = normals(config, seed, *stream_key)
        states = [reply.state for reply in replies]
        released, norms = released_mean(model, states, clip_norm, self.asked, self.noise_std, rng, sent)
        if config.is_adaptive:
            std = count_std(self.asked, config.noise_multiplier)
            self.clip_norm = next_clip_norm(
                clip_norm, self._unclipped(replies, norms), self.asked, std * rng.standard_normal(),
                config.clip_quantile, config.clip_lr,
            )  # fmt: skip
        return released

    def _unclipped(self, replies: Sequence[TrainReply], norms: Sequence[float]) -> list[bool]:
        """Whether each update was within the norm before clipping, as stated in the replies."""
        if self._config.kind.startswith("client"):  # updates arrive clipped
            return [not reply.clipped for reply in replies if reply.clipped is not None]
        return [norm <= self.clip_norm for norm in norms]
