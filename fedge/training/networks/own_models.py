"""A user's own models: any `nn.Module`, built by the user's code, and refused if unusable.

The constructor call is ``Net(input_shape, classes, **arguments)``, or
``Net(num_classes=classes, **arguments)`` (as in torchvision), depending on its signature. Its code draws
initial weights from the global random streams of PyTorch, NumPy and Python, which all threads of a process
share; so they are seeded before and restored after the call, under a lock. In training, draws (dropout) come
from a stream of the client's own (`OwnDraws`). So equal seeds give equal bits on every engine.
"""

import inspect
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, get_type_hints
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._python_dispatch import TorchDispatchMode

from fedge.config.registers.determinism import GLOBAL_STREAMS, call_twice
from fedge.config.registers.failing import own_error, own_errors
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import MODELS
from fedge.config.registers.register import refuse_wrong_signature

Shape = tuple[int, ...]
"""Of one input: (C, T) or (C, H, W)."""


@dataclass(frozen=True)
class OwnFit:
    """Inputs of a model, and its required outputs.

    Attributes:
        tokens: inputs are int64, from 0 on; else float32.
        answer: shape of the output for one input; None: (classes,).
        word: name of outputs in errors.
    """

    tokens: bool = False
    answer: Shape | None = None
    word: str = "logits"


BATCH_NORMS = (_BatchNorm,)  # of any number of axes

_LARGE = 10_000_000  # numbers; the gradient of a larger model is not made whole to try it

_PLAIN = (bool, int, float, str)

_self_seeded: WeakSet[nn.Module] = WeakSet()


def build_own(
    name: str,
    factory: Callable[..., Any],
    input_shape: Shape,
    classes: int,
    generator: torch.Generator,
    arguments: Mapping[str, Any],
    fit: OwnFit | None = None,
) -> nn.Module:
    """A user's model with initial weights, on the CPU, in training mode.

    Args:
        name: name of the model in errors.
        factory: class or function.
        input_shape: (C, T) or (C, H, W).
        classes: number of logits.
        generator: seeds the stream of the model's code; it advances.
        arguments: by keyword.
        fit: its input and answer; None: numbers, a logit per class.

    Raises:
        ConfigError: construction or training fails.
    """
    if isinstance(factory, nn.Module):
        problem = (
            f"must be a class or a function that makes a network, but is a network ({type(factory).__name__})"
        )
        raise _refusal(name, problem, None, "name its class, or a function that returns it")
    seed = int(torch.randint(2**62, (), generator=generator))
    with GLOBAL_STREAMS, _seeded_global_streams(seed):
        try:
            model = _construct(factory, tuple(input_shape), classes, arguments)
        except own_errors() as error:
            raise _refusal(
                name,
                f"cannot be made for {input_shape}, {classes}",
                error,
                _call_hint(factory, arguments),
            ) from error
        if isinstance(model, nn.Module) and torch.initial_seed() != seed:
            _self_seeded.add(model)
        try:
            _refuse_untrainable(name, model)
        except (AttributeError, TypeError) as error:  # nn.Module's own tables are not there
            hint = "does its __init__ call super().__init__() first?"
            raise _refusal(name, "cannot be read as a network", error, hint) from error
        _try_out(name, model, tuple(input_shape), classes, fit or OwnFit())
    return model.train()


@contextmanager
def _seeded_global_streams(seed: int) -> Iterator[None]:
    """Seed the global streams of PyTorch (CPU), NumPy and Python, and restore them afterwards."""
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)  # noqa: NPY002
            random.setstate(python_state)


def refuse_unseeded_weights(name: str, model: nn.Module, rebuild: Callable[[], nn.Module]) -> None:
    """Raise ConfigError unless the seed of a run determines initial weights.

    Nodes with their own data draw frozen entries themselves, and would otherwise train different networks.
    Large models are not made twice. Code that seeds PyTorch has the same initial weights under every seed.

    Args:
        name: name of the model in errors.
        model: a model from `build_own`.
        rebuild: builds another one from the same seed.
    """
    if model in _self_seeded:
        problem = "must draw its weights from the run's seed, but seeds PyTorch itself, alike for every seed"
        raise _refusal(name, problem, None, "leave out manual_seed")
    entries = model.state_dict()
    if sum(entry.numel() for entry in entries.values()) > _LARGE:
        return
    second_entries = rebuild().state_dict()
    for key, entry in entries.items():
        if key not in second_entries or entry.numpy().tobytes() != second_entries[key].numpy().tobytes():
            problem = f"must have weights that follow from the seed, but {key} is another in a second network"
            hint = "draw by torch.randn and the like, numpy.random or random, without a generator of its own"
            raise _refusal(name, problem, None, hint)


def _construct(
    factory: Callable[..., Any], input_shape: Shape, classes: int, arguments: Mapping[str, Any]
) -> Any:
    """The model, constructed with the arguments in its signature."""
    if takes_num_classes(factory):
        return factory(num_classes=classes, **arguments)
    return factory(input_shape, classes, **arguments)


def _call_hint(factory: Callable[..., Any], arguments: Mapping[str, Any]) -> str:
    """The next step after a failed call: another signature if this one does not accept the call."""
    default_hint = "fix it, or change train.model-args"
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):
        return default_hint
    try:
        signature.bind(*(() if takes_num_classes(factory) else ((), 0)), **arguments)
    except TypeError:
        return "it is called with (input_shape, classes), or with num_classes alone if it names that"
    return default_hint


def refuse_undeclared_network(name: str, factory: Any) -> None:
    """Raise ConfigError for code named by a file as a network without declaring one.

    Subclasses of `nn.Module` declare one, and functions annotated to return one, as in torchvision; an entry
    point of the group "fedge.models" is its package's declaration. Nothing is called.
    """
    if inspect.isclass(factory) and issubclass(factory, nn.Module):
        return
    if MODELS.is_declared(name):
        return
    if inspect.isfunction(factory):
        with suppress(Exception):  # annotations are others' code
            return_type = get_type_hints(factory).get("return")
            if inspect.isclass(return_type) and issubclass(return_type, nn.Module):
                return
    raise _refusal(
        name,
        "must be a subclass of torch.nn.Module, or a function that is annotated to return one, where a file "
        f"names it, but is {type(factory).__name__} {getattr(factory, '__name__', '')}".rstrip(),
        None,
        "annotate it as `-> nn.Module`, or do not use this file",
    )


def refuse_other_types(name: str, factory: Any, arguments: Mapping[str, Any]) -> None:
    """Raise ConfigError for a file's argument of another kind than the network's.

    The kind is the annotation's if bool, int, float or str, else the default's if one of these; a whole
    number passes as a float. Arguments with neither are left to the network.
    """
    if not arguments:
        return
    by_keyword = takes_num_classes(factory)
    call_arguments = {**arguments, "num_classes": 1} if by_keyword else arguments
    positions = () if by_keyword else ("input_shape", "classes")
    refuse_wrong_signature(factory, f"train.model {name}", "train.model-args", call_arguments, positions)
    hints: Mapping[str, Any] = {}
    with suppress(Exception):  # annotations are others' code
        hints = get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
    for key, value in arguments.items():
        parameter = inspect.signature(factory).parameters.get(key)
        default = None if parameter is None or parameter.default is parameter.empty else parameter.default
        kind = hints.get(key) if hints.get(key) in _PLAIN else type(default)
        is_valid = type(value) is kind or (kind is float and type(value) is int)
        if kind in _PLAIN and not is_valid:
            raise ConfigError(
                f"train.model-args.{key} must be {kind.__name__} for train.model {name}, but is "
                f"{shown(value)}; get another file of models"
            )


def takes_num_classes(factory: Callable[..., Any]) -> bool:
    """Whether a model is to be called with `num_classes` alone, as torchvision's are."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):
        return False
    parameters = signature.parameters
    if "input_shape" in parameters:
        return False
    positional = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    any_keyword = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    any_positional = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    return "num_classes" in parameters or (any_keyword and len(positional) < 2 and not any_positional)


def _refuse_untrainable(name: str, model: Any) -> None:
    """Raise ConfigError for an object that is no network, or has parameters that a step cannot change."""
    if not isinstance(model, nn.Module):
        raise _refusal(name, f"must make a torch.nn.Module, but made {type(model).__name__}", None, "fix it")
    if any(isinstance(layer, torch.jit.ScriptModule) for layer in model.modules()):
        problem = "must be of layers that Python calls, but is scripted"
        raise _refusal(name, problem, None, "leave out torch.jit.script; fedge export writes TorchScript")
    lazy = [key for key, p in model.named_parameters() if isinstance(p, nn.UninitializedParameter)]
    if lazy:
        raise _refusal(
            name,
            f"must know the sizes of its layers, but {lazy[0]} is lazy",
            None,
            "use input_shape for them",
        )
    trainable = {key: p for key, p in model.named_parameters() if p.requires_grad}
    if not trainable:
        raise _refusal(name, "must have parameters to train, but has none", None, "add a layer")
    for key, entry in model.state_dict(keep_vars=True).items():
        if not isinstance(entry, Tensor):
            raise _refusal(
                name,
                f"must have tensors as its state, but {key} is {type(entry).__name__}",
                None,
                "keep numbers in buffers instead of get_extra_state",
            )
        if entry.is_complex() or entry.is_quantized:
            raise _refusal(
                name,
                f"must have real numbers, but {key} is {entry.dtype}",
                None,
                "keep real and imaginary part",
            )
        if entry.dtype == torch.bfloat16 or (key in trainable and entry.dtype != torch.float32):
            raise _refusal(
                name, f"must have float32 parameters, but {key} is {entry.dtype}", None, "call .float() on it"
            )
    for parameter in trainable.values():
        parameter.data = parameter.data.contiguous()
    for entry in model.state_dict(keep_vars=True).values():
        if 0 in entry.stride():  # expanded: several numbers share a place, and none can be loaded
            entry.data = entry.data.contiguous()


def _try_out(name: str, model: nn.Module, input_shape: Shape, classes: int, fit: OwnFit) -> None:
    """Raise ConfigError if the model fails on two inputs, or if its output does not have the task's shape."""
    examples = torch.zeros(2, *input_shape, dtype=torch.int64 if fit.tokens else torch.float32)
    for count in (2, 1):  # a single one: the rest of a client's windows may be one
        inputs, expected = examples[:count], (count, *((classes,) if fit.answer is None else fit.answer))
        try:
            with torch.no_grad():
                logits = model.eval()(inputs.clone())
        except own_errors() as error:
            problem = f"cannot take inputs of shape {tuple(inputs.shape)}{', int64' if fit.tokens else ''}"
            raise _refusal(name, problem, error, "fix its forward, or take another model") from error
        actual = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        if actual != expected or not logits.is_floating_point():
            is_transposed = isinstance(logits, Tensor) and sorted(actual) == sorted(expected) and count > 1
            number = "2 inputs" if count > 1 else "1 input"
            raise _refusal(
                name, f"must return {fit.word} of shape {expected} for {number}, but returned {actual}", None,
                "turn its axes, for example by .movedim(-1, 1)" if is_transposed else "fix its forward",
            )  # fmt: skip


def refuse_a_step_that_fails(name: str, model: nn.Module, inputs: Tensor) -> None:
    """Raise ConfigError when a model cannot be trained: tried in training mode, on two inputs.

    For a large model, only the gradient of the first parameter is computed, to save memory; its backward pass
    runs through all layers. The model's buffers change, as by a step on two inputs.

    Args:
        name: name of the model in errors.
        model: a model from `build_own`.
        inputs: (2, …), windows of the run.
    """
    trainable = {key: parameter for key, parameter in model.named_parameters() if parameter.requires_grad}
    if sum(parameter.numel() for parameter in trainable.values()) > _LARGE:
        trainable = dict(list(trainable.items())[:1])
    gradients: Sequence[Tensor | None] = ()
    before = {key: (entry.shape, entry.dtype) for key, entry in model.state_dict().items()}
    with GLOBAL_STREAMS, torch.random.fork_rng(devices=[]):
        try:
            logits = model.train()(inputs)
            if isinstance(logits, Tensor) and logits.requires_grad:
                gradients = torch.autograd.grad(logits.sum(), list(trainable.values()), allow_unused=True)
        except own_errors() as error:
            tokens = inputs.dtype == torch.int64
            problem = f"cannot be trained{f' on tokens up to {int(inputs.max())}' if tokens else ''}"
            hint = "fix its forward" + (", or give its embedding a row for each token" if tokens else "")
            raise _refusal(name, problem, error, hint) from error
    if not isinstance(logits, Tensor):
        problem = f"must return logits in training too, but returned {type(logits).__name__}"
        raise _refusal(name, problem, None, "fix its forward, or its arguments (aux_logits=False)")
    if not logits.requires_grad:
        problem = "must be trainable, but its output depends on no parameter"
        raise _refusal(name, problem, None, "fix its forward: no no_grad() or detach() there")
    _refuse_hidden_tensors(name, model, logits)
    sparse = [key for key, g in zip(trainable, gradients, strict=True) if g is not None and g.is_sparse]
    if sparse:
        problem = f"must have dense gradients, but that of {sparse[0]} is sparse"
        raise _refusal(name, problem, None, "make its layer with sparse=False")
    after = {key: (entry.shape, entry.dtype) for key, entry in model.state_dict().items()}
    changed = next((key for key in before.keys() | after.keys() if before.get(key) != after.get(key)), None)
    if changed is not None:
        old, new = (entries.get(changed, ("absent",))[0] for entries in (before, after))
        problem = (
            f"must keep the shapes of its entries, but training makes {changed} {_shape_text(new)} of "
            f"{_shape_text(old)}"
        )
        raise _refusal(
            name, problem, None, "register it with persistent=False, or make it its full size at once"
        )
    with GLOBAL_STREAMS:
        _refuse_other_draws(name, model, inputs)


def _refuse_hidden_tensors(name: str, model: nn.Module, logits: Tensor) -> None:
    """Raise ConfigError if logits depend on tensors with a gradient that are not parameters.

    Layers in a Python list are not registered: they would not be trained, sent or saved.
    """
    parameter_ids = {id(parameter) for parameter in model.parameters()}
    stack, seen = [logits.grad_fn], set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        stack.extend(next_node for next_node, _ in node.next_functions)
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in parameter_ids:
            problem = (
                f"must have all it trains among its parameters, but uses a tensor {tuple(leaf.shape)} beside"
            )
            raise _refusal(
                name, problem, None, "register it: nn.ModuleList for a list of layers, nn.Parameter"
            )


def _refuse_other_draws(name: str, model: nn.Module, inputs: Tensor) -> None:
    """Raise ConfigError if a forward pass draws from a stream other than the client's (`OwnDraws`)."""

    def run_training() -> None:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):  # PyTorch's own are lent
            model.train()(inputs)

    def run_evaluation() -> None:
        with torch.no_grad():
            model.eval()(inputs)

    call_twice(f"train.model {name} in training", run_training, "draw by torch.randn and the like", True)
    call_twice(f"train.model {name} in evaluation", run_evaluation, "draw in training only", True)


def _shape_text(shape: Any) -> str:
    """A shape in words."""
    return shape if isinstance(shape, str) else str(tuple(shape))


def _refusal(name: str, problem: str, error: BaseException | None, hint: str) -> ConfigError:
    """An error in one line."""
    cause = "" if error is None else f": {own_error(error)}"
    return ConfigError(f"train.model {name} {problem}{cause}; {hint}")


class OwnDraws(TorchDispatchMode):
    """While entered, all draws of this thread's operations come from one generator.

    Dropout draws from PyTorch's global stream of the CPU or of a GPU, which all clients of a process would
    share in the order in which they happen to run. A GPU's stream is seeded for every operation.
    """

    def __init__(self, generator: torch.Generator) -> None:
        """Draw from `generator`, which advances."""
        super().__init__()
        self._generator = generator
        self.drew = False  # whether anything was drawn so far

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, with the generator for random draws."""
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        self.drew = True
        parameters = {argument.name for argument in func._schema.arguments}
        device = _device_of(args, kwargs)
        if kwargs.get("generator") is not None or device.type not in ("cpu", "cuda"):
            return func(*args, **kwargs)
        if device.type == "cpu" and "generator" in parameters:
            return func(*args, **{**kwargs, "generator": self._generator})
        seed = int(torch.randint(2**62, (), generator=self._generator))
        if device.type == "cuda":
            with GLOBAL_STREAMS:  # numbers are settled when the operation is launched, not when it runs
                torch.cuda.default_generators[_gpu_index(device)].manual_seed(seed)
                return func(*args, **kwargs)
        with GLOBAL_STREAMS, torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return func(*args, **kwargs)


def _device_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.device:
    """Device on which an operation draws: that of its tensors, or the one named in its arguments.

    >>> _device_of((torch.zeros(1),), {}), _device_of((3,), {"device": "meta"}), _device_of((), {})
    (device(type='cpu'), device(type='meta'), device(type='cpu'))
    """
    tensor_device = next((a.device for a in args if isinstance(a, Tensor) and a.device.type != "cpu"), None)
    return tensor_device or torch.device(kwargs.get("device") or "cpu")


def _gpu_index(gpu: torch.device) -> int:
    """The number of a GPU; this thread's by default."""
    return torch.cuda.current_device() if gpu.index is None else gpu.index
