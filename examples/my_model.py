"""A model: any `torch.nn.Module`. Its code draws the initial weights; dropout uses a stream per client."""

from torch import Tensor, nn


class Gru(nn.Module):
    """A GRU over the samples of a window; the class from the last state."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, hidden: int = 32, dropout: float = 0.1):
        """Take windows of `input_shape` (C, T); `train.model-args` has the rest."""
        super().__init__()
        channels, _ = input_shape
        self.gru = nn.GRU(channels, hidden, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, T) → (N, classes)."""
        states, _ = self.gru(x.transpose(1, 2))
        return self.head(self.dropout(self.norm(states[:, -1])))
