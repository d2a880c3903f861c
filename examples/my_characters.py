"""A character model: predicts the next character at each position of a text. Data: `data.path="sonnets"`."""

from torch import Tensor, nn


class Gru(nn.Module):
    """A GRU over tokens, with a prediction of the next token from every state; `train.task="sequence"`."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, width: int = 16, hidden: int = 48):
        """Take pieces of `input_shape` (T,); `train.model-args` has the rest."""
        super().__init__()
        self.embedding = nn.Embedding(classes, width)
        self.gru = nn.GRU(width, hidden, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T) int64 → (N, classes, T)."""
        states, _ = self.gru(self.embedding(x))
        return self.head(states).transpose(1, 2)
