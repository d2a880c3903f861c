"""Models of the user's own: any layers, same bits from equal seeds, and one line where they cannot work."""

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from fedge.config.registers.option import ConfigError
from fedge.training.local import train
from fedge.training.networks.models import head_names, layer_names
from fedge.training.networks.module_state import get_state, load_state
from fedge.training.networks.own_models import (
    OwnDraws,
    OwnFit,
    build_own,
    refuse_a_step_that_fails,
    refuse_unseeded_weights,
    takes_num_classes,
)
from fedge.training.settings import LocalTraining

SHAPE, CLASSES = (3, 16), 4


class Recurrent(nn.Module):
    """Takes the last state of an LSTM or GRU, with LayerNorm and dropout."""

    def __init__(self, input_shape, classes, cell=nn.LSTM, dropout=0.5):
        super().__init__()
        self.cell = cell(input_shape[0], 8, num_layers=2, batch_first=True, dropout=dropout)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, classes)

    def forward(self, x):
        return self.head(self.norm(self.cell(x.transpose(1, 2))[0][:, -1]))


class Attention(nn.Module):
    """One encoder layer over time, and a token of its own: a parameter beside those of layers."""

    def __init__(self, input_shape, classes):
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.embed = nn.Linear(input_shape[0], 8)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
        self.head = nn.Linear(8, classes)

    def forward(self, x):
        embedded = self.embed(x.transpose(1, 2))
        with_token = torch.cat([self.token.expand(len(x), -1, -1), embedded], dim=1)
        return self.head(self.encoder(with_token)[:, 0])


class Residual(nn.Module):
    """As torchvision's: `num_classes` by name, images, BatchNorm2d, no head's bias."""

    def __init__(self, *, weights=None, num_classes=1000, **_):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.block = nn.Conv2d(6, 6, 3, padding=1)
        self.fc = nn.Linear(6, num_classes, bias=False)

    def forward(self, x):
        x = self.norm(self.stem(x)).relu()
        return self.fc((x + self.block(x)).mean(dim=(2, 3)))


def open_ended(*, weights=None, progress=True, **kwargs):
    """As torchvision's functions: the signature does not even say `num_classes`."""
    return Residual(weights=weights, **kwargs)


NETWORKS = {
    "lstm": (Recurrent, SHAPE, {}),
    "gru": (Recurrent, SHAPE, {"cell": nn.GRU}),
    "attention": (Attention, SHAPE, {}),
    "residual": (Residual, (3, 8, 8), {}),
    "function": (open_ended, (3, 8, 8), {"progress": False}),
}


def built(name, seed=0):
    factory, shape, arguments = NETWORKS[name]
    return build_own(f"mine:{name}", factory, shape, CLASSES, torch.Generator().manual_seed(seed), arguments)


def trained(name, seed=0, draws=1):
    shape = NETWORKS[name][1]
    stream = torch.Generator().manual_seed(5)
    x, y = torch.randn(20, *shape, generator=stream), torch.randint(0, CLASSES, (20,), generator=stream)
    settings = LocalTraining(lr=0.05, epochs=2, batch_size=8, clip_norm=1.0)
    generators = [torch.Generator().manual_seed(number) for number in (9, draws)]
    return train(built(name, seed), x, y, settings, generators[0], draws=generators[1])


def equal(one, other):
    return all((one[name] == other[name]).all() for name in one)


@pytest.mark.parametrize("name", NETWORKS)
def test_initial_weights_follow_from_the_seed_alone(name):
    before = torch.get_rng_state()
    one, same, other = (get_state(built(name, seed)) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert equal(one, same)
    assert not equal(one, other)


SOURCES = {
    "torch": lambda n: torch.randn(n),
    "numpy": lambda n: torch.from_numpy(np.random.randn(n).astype(np.float32)),  # noqa: NPY002
    "python": lambda n: torch.tensor([random.random() for _ in range(n)]),
    "a generator": lambda n: torch.from_numpy(np.random.default_rng().normal(size=n).astype(np.float32)),
}


class Drawn(nn.Module):
    """Draws weights of its own from a source of chance."""

    def __init__(self, input_shape, classes, source):
        super().__init__()
        self.head = nn.Linear(input_shape[0], classes)
        with torch.no_grad():
            self.head.bias.copy_(SOURCES[source](classes))

    def forward(self, x):
        return self.head(x.mean(dim=2))


@pytest.mark.parametrize("source", SOURCES)
def test_weights_from_any_global_stream_follow_from_the_seed(source):
    """The streams are afterwards as they were; what comes from elsewhere is refused."""

    def build(seed=0):
        generator = torch.Generator().manual_seed(seed)
        return build_own("mine:Drawn", Drawn, SHAPE, CLASSES, generator, {"source": source})

    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    one, other = build(), build(1)
    if source == "a generator":
        with pytest.raises(
            ConfigError, match=r"weights that follow from the seed, but head\.bias is another"
        ):
            refuse_unseeded_weights("mine:Drawn", one, build)
    else:
        refuse_unseeded_weights("mine:Drawn", one, build)
        assert not equal(get_state(one), get_state(other))
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_training_in_threads_gives_the_bits_of_training_alone(name):
    """Dropout of eight clients at a time, each from its own stream."""
    alone = [trained(name, draws=number).state for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda number: trained(name, draws=number).state, range(8)))
    assert all(equal(a, b) for a, b in zip(alone, together, strict=True))
    has_dropout = name in ("lstm", "gru", "attention")
    assert equal(alone[0], alone[1]) != has_dropout


def test_what_cannot_be_drawn_from_a_generator_follows_from_it():
    """`rand_like` takes none on some versions; `multinomial` takes one."""
    before = torch.get_rng_state()
    drawn = []
    for _ in range(2):
        with OwnDraws(torch.Generator().manual_seed(3)) as draws:
            drawn.append(
                (torch.rand_like(torch.zeros(3)), torch.multinomial(torch.ones(5), 2), torch.randn(2))
            )
        assert draws.drew
    assert all(torch.equal(one, other) for one, other in zip(*drawn, strict=True))
    assert torch.equal(torch.get_rng_state(), before)


def test_what_can_be_drawn_from_a_generator_is_drawn_from_it():
    """As dropout's masks are, whose operation takes one."""
    with OwnDraws(torch.Generator().manual_seed(3)):
        drawn = torch.zeros(9).bernoulli_(0.5), torch.multinomial(torch.ones(5), 2)
    own = torch.Generator().manual_seed(3)
    assert torch.equal(drawn[0], torch.zeros(9).bernoulli_(0.5, generator=own))
    assert torch.equal(drawn[1], torch.multinomial(torch.ones(5), 2, generator=own))


def test_own_layers_follow_from_the_parameters():
    assert head_names(built("lstm")) == ("head.weight", "head.bias")
    assert head_names(built("residual")) == ("fc.weight",)
    norm = layer_names(built("residual"), ("batch-norm",))
    assert norm == [
        f"norm.{e}" for e in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    ]
    assert layer_names(built("lstm"), ("batch-norm",)) == []


def test_a_parameter_of_two_names_is_one_entry():
    class Tied(nn.Module):
        def __init__(self, input_shape, classes):
            super().__init__()
            self.first = nn.Linear(input_shape[0], input_shape[0], bias=False)
            self.second = nn.Linear(input_shape[0], input_shape[0], bias=False)
            self.second.weight = self.first.weight
            self.head = nn.Linear(input_shape[0], classes)
            self.unused = nn.Linear(2, 2)

        def forward(self, x):
            return self.head(self.second(self.first(x.mean(dim=2))))

    model = build_own("mine:Tied", Tied, SHAPE, CLASSES, torch.Generator(), {})
    state = get_state(model)
    assert sorted(state) == ["first.weight", "head.bias", "head.weight", "unused.bias", "unused.weight"]
    load_state(model, {name: array + 1 for name, array in state.items()})
    assert torch.equal(model.second.weight, model.first.weight)
    x, y = torch.randn(4, *SHAPE), torch.tensor([0, 1, 2, 3])
    after = train(model, x, y, LocalTraining(weight_decay=0.0), torch.Generator()).state
    assert (after["unused.weight"] == state["unused.weight"] + 1).all()  # no part in the loss: it stays
    assert (after["first.weight"] != state["first.weight"] + 1).any()


class Wrong(nn.Module):
    """Goes wrong in the way that it is asked to."""

    def __init__(self, input_shape, classes, how):
        super().__init__()
        if how == "raises":
            raise RuntimeError("no such size")
        self.how = how
        self.head = nn.LazyLinear(classes) if how == "lazy" else nn.Linear(input_shape[0], classes)
        if how == "frozen":
            self.requires_grad_(False)
        if how == "double":
            self.double()
        if how == "complex":
            self.register_buffer("phase", torch.zeros(2, dtype=torch.complex64))

    def forward(self, x):
        if self.how == "crashes":
            return x @ x
        logits = self.head(x.mean(dim=2))
        return {"wide": torch.cat([logits, logits], 1), "tuple": (logits,)}.get(self.how, logits)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raises", r"cannot be made for \(3, 16\), 4: RuntimeError: no such size"),
        ("lazy", "head.weight is lazy; use input_shape"),
        ("frozen", "must have parameters to train, but has none"),
        ("double", "must have float32 parameters, but head.weight is torch.float64"),
        ("complex", "must have real numbers, but phase is torch.complex64"),
        ("crashes", r"cannot take inputs of shape \(2, 3, 16\): RuntimeError"),
        ("wide", r"must return logits of shape \(2, 4\) for 2 inputs, but returned \(2, 8\)"),
        ("tuple", r"must return logits of shape \(2, 4\) for 2 inputs, but returned tuple"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(how, message):
    with pytest.raises(ConfigError, match=f"^train.model mine:Wrong .*{message}") as caught:
        build_own("mine:Wrong", Wrong, SHAPE, CLASSES, torch.Generator(), {"how": how})
    assert "\n" not in str(caught.value)


class Counting(nn.Module):
    """Keeps a number beside its tensors, as a layer of quantisation does."""

    def __init__(self, input_shape, classes):
        super().__init__()
        self.head, self.calls = nn.Linear(input_shape[0], classes), 0

    def get_extra_state(self):
        return {"calls": self.calls}

    def forward(self, x):
        return self.head(x.mean(dim=2))


def test_state_that_is_no_tensor_is_refused_by_its_name():
    with pytest.raises(ConfigError, match="must have tensors as its state, but _extra_state is dict; keep"):
        build_own("mine:Counting", Counting, SHAPE, CLASSES, torch.Generator(), {})


class Expanded(nn.Module):
    """Has entries whose numbers share one place in memory."""

    def __init__(self, input_shape, classes):
        super().__init__()
        self.head = nn.Linear(input_shape[0], classes)
        self.register_buffer("offset", torch.zeros(1).expand(classes))
        self.scale = nn.Parameter(torch.ones(1).expand(classes), requires_grad=False)

    def forward(self, x):
        return self.head(x.mean(dim=2)) * self.scale + self.offset


def test_expanded_entries_can_be_loaded():
    """Otherwise every client would fail in the first round."""
    model = build_own("mine:Expanded", Expanded, SHAPE, CLASSES, torch.Generator(), {})
    state = {name: array + 2 for name, array in get_state(model).items()}
    load_state(model, state)
    assert all(np.array_equal(array, state[name]) for name, array in get_state(model).items())


class Hiding(nn.Module):
    """Trains a tensor that it has not registered."""

    def __init__(self, input_shape, classes, where):
        super().__init__()
        self.head, layer = nn.Linear(input_shape[0], classes), nn.Linear(classes, classes)
        self.where, self.layers, self.by_name = where, [layer], {"last": layer}
        self.weight = torch.ones(classes, requires_grad=True)
        self.constant = torch.ones(classes)
        self.register_buffer("scale", torch.ones(classes, requires_grad=where == "buffer"))

    def forward(self, x):
        logits = self.head(x.mean(dim=2))
        return {
            "list": lambda: self.layers[0](logits),
            "table": lambda: self.by_name["last"](logits),
            "tensor": lambda: logits * self.weight,
            "buffer": lambda: logits * self.scale,
            "nowhere": lambda: logits * self.constant * self.scale,
        }[self.where]()


@pytest.mark.parametrize("where", ["list", "table", "tensor", "buffer", "nowhere"])
def test_what_trains_must_be_registered(where):
    """Layers in a list would stay as they began, untold, and be missing from every saved model."""
    model = build_own("mine:Hiding", Hiding, SHAPE, CLASSES, torch.Generator(), {"where": where})
    if where == "nowhere":
        refuse_a_step_that_fails("mine:Hiding", model, torch.zeros(2, *SHAPE))
        return
    with pytest.raises(
        ConfigError, match=r"^train\.model mine:Hiding must have all it trains among its "
    ) as caught:
        refuse_a_step_that_fails("mine:Hiding", model, torch.zeros(2, *SHAPE))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (
            lambda logits: logits.squeeze(),
            r"must return logits of shape \(1, 4\) for 1 input, but returned \(4,\)",
        ),
        (lambda logits: logits - logits[1], r"cannot take inputs of shape \(1, 3, 16\): IndexError"),
        (lambda logits: logits - logits[0], None),
    ],
)
def test_a_single_window_is_answered_too(forward, words):
    """The rest of a client's windows is often one."""

    class Few(nn.Module):
        def __init__(self, input_shape, classes):
            super().__init__()
            self.head = nn.Linear(input_shape[0], classes)

        def forward(self, x):
            return forward(self.head(x.mean(dim=2)))

    if words is None:
        build_own("mine:Few", Few, SHAPE, CLASSES, torch.Generator(), {})
        return
    with pytest.raises(ConfigError, match=words):
        build_own("mine:Few", Few, SHAPE, CLASSES, torch.Generator(), {})


def test_weights_of_a_seed_of_the_code_s_own_are_refused_for_runs_and_may_be_loaded():
    class Seeded(Recurrent):
        def __init__(self, input_shape, classes):
            torch.manual_seed(0)
            super().__init__(input_shape, classes)

    def build():
        return build_own("mine:Seeded", Seeded, SHAPE, CLASSES, torch.Generator(), {})

    with pytest.raises(
        ConfigError, match="from the run's seed, but seeds PyTorch itself, alike for every seed"
    ):
        refuse_unseeded_weights("mine:Seeded", build(), build)


@pytest.mark.parametrize("part", ["whole", "layer"])
def test_scripted_networks_are_refused(part):
    def factory(input_shape, classes):
        layer = torch.jit.script(nn.Linear(input_shape[0] * input_shape[1], classes))
        whole = nn.Sequential(nn.Flatten(), layer)
        return torch.jit.script(whole) if part == "whole" else whole

    with pytest.raises(ConfigError, match=r"but is scripted; leave out torch\.jit\.script"):
        build_own("mine:scripted", factory, SHAPE, CLASSES, torch.Generator(), {})


def test_a_class_that_takes_other_arguments_is_told_what_it_is_called_with():
    """As networks of tutorials are, made without any."""

    class Bare(nn.Module):
        def __init__(self):
            super().__init__()

    with pytest.raises(
        ConfigError, match=r"cannot be made for .*; it is called with \(input_shape, classes\)"
    ):
        build_own("mine:Bare", Bare, SHAPE, CLASSES, torch.Generator(), {})


def test_a_network_in_place_of_its_class_is_told_so():
    network = Recurrent(SHAPE, CLASSES)
    with pytest.raises(
        ConfigError, match=r"a class or a function that makes a network, but is a network \(Rec"
    ):
        build_own("mine:network", network, SHAPE, CLASSES, torch.Generator(), {})


def test_what_is_no_module_is_refused():
    with pytest.raises(ConfigError, match=r"must make a torch\.nn\.Module, but made int"):
        build_own("mine:three", lambda input_shape, classes: 3, SHAPE, CLASSES, torch.Generator(), {})


def test_a_module_that_was_never_set_up_is_refused():
    class Bare(nn.Module):
        def __init__(self, input_shape, classes):
            self.classes = classes

    with pytest.raises(
        ConfigError, match=r"mine:Bare cannot be read .* call super\(\)\.__init__\(\) first\?$"
    ):
        build_own("mine:Bare", Bare, SHAPE, CLASSES, torch.Generator(), {})


def test_how_a_model_is_called_follows_from_its_signature():
    assert takes_num_classes(Residual)
    assert takes_num_classes(open_ended)
    assert not takes_num_classes(Recurrent)
    assert not takes_num_classes(lambda shape, count: None)
    assert not takes_num_classes(lambda input_shape, num_classes: None)
    assert not takes_num_classes(lambda *args, **kwargs: None)


class Untrainable(Wrong):
    """Answers, and goes wrong in training."""

    def __init__(self, input_shape, classes, how):
        super().__init__(input_shape, classes, how)
        self.register_buffer("queue", torch.zeros(0, classes))
        self.rows = nn.Parameter(torch.zeros(2, input_shape[0]))

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        if self.how == "sparse":
            return self.head(nn.functional.embedding(torch.arange(len(x)), self.rows, sparse=True))
        if self.how == "fails":
            raise RuntimeError("two\nlines")
        logits = self.head(x.mean(dim=2))
        if self.how == "in place":
            return logits.exp().mul_(2)
        if self.how == "grows":
            self.queue = torch.cat([self.queue, logits.detach()])
        if self.how == "vanishes":
            del self.queue
        return {"detached": logits.detach(), "pair": (logits, logits)}.get(self.how, logits)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("works", ""),
        ("fails", r"cannot be trained: RuntimeError: two lines \(\S+, line \d+\); fix its forward"),
        ("in place", "cannot be trained: RuntimeError: .*modified by an inplace operation"),
        ("sparse", "must have dense gradients, but that of rows is sparse; make its layer with sparse=False"),
        ("detached", "must be trainable, but its output depends on no parameter; "),
        ("pair", "must return logits in training too, but returned tuple; "),
        ("grows", r"must keep the shapes of its entries, but training makes queue \(2, 4\) of \(0, 4\); "),
        ("vanishes", r"must keep the shapes of its entries, but training makes queue absent of \(0, 4\); "),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(how, message):
    before = torch.get_rng_state()
    model = build_own("mine:Wrong", Untrainable, SHAPE, CLASSES, torch.Generator(), {"how": how})
    if message:
        with pytest.raises(ConfigError, match=f"^train.model mine:Wrong {message}") as caught:
            refuse_a_step_that_fails("mine:Wrong", model, torch.ones(2, *SHAPE))
        assert "\n" not in str(caught.value)
    else:
        refuse_a_step_that_fails("mine:Wrong", model, torch.ones(2, *SHAPE))
        assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), before)


class Rows(torch.nn.Module):
    """An embedding of ten tokens."""

    def __init__(self, input_shape, classes):
        super().__init__()
        self.rows = torch.nn.Embedding(10, classes)

    def forward(self, x):
        return self.rows(x).mean(1)


def test_a_token_without_a_row_is_refused_with_its_number():
    model = build_own("mine:Rows", Rows, (3,), CLASSES, torch.Generator(), {}, OwnFit(tokens=True))
    refuse_a_step_that_fails("mine:Rows", model, torch.full((2, 3), 9))
    message = r"^train.model mine:Rows cannot be trained on tokens up to 10: IndexError: .* each token$"
    with pytest.raises(ConfigError, match=message):
        refuse_a_step_that_fails("mine:Rows", model, torch.full((2, 3), 10))
