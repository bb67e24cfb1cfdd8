"""Label the tensors of a PyTorch training as parameter, gradient, optimizer state or activation.

    import gpumem.torch
    gpumem.torch.label(model, optimizer)

From then on the blocks of PyTorch's pool have these labels, and ``gpumem summary --by class`` sums by them;
blocks without a label are "other". The blocks are found by the addresses of tensors: parameters now and after
each step of the optimizer, gradients when backward has computed them, the optimizer's state after each step,
and, as activations, the results of modules while gradients are recorded. A label ends with its block, so a
snapshot has only the classes of blocks that are live in it: take one when memory runs out, or within a step.

This module does not import PyTorch. The model and the optimizer are kept alive until ``remove()``. Without
the library nothing is labelled. A step costs a call of the library for each class, and one for each gradient
and each module.
"""
import ctypes
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

from . import _library, available

__all__ = ["label", "Labels"]

_DEEP = 4       # levels of lists and dicts in which tensors are looked for


def _place(tensor: Any) -> Optional[Tuple[int, int]]:
    """Return the device of a CUDA tensor and the address of its block; None for other tensors."""
    try:
        if not tensor.is_cuda:
            return None
        storage = getattr(tensor, "untyped_storage", None)
        address = int(storage().data_ptr() if storage else tensor.data_ptr())
        return (int(tensor.device.index or 0), address) if address else None
    except (AttributeError, RuntimeError, NotImplementedError, TypeError):     # fake, meta, sparse ... tensors
        return None


def _tensors(value: Any, depth: int = _DEEP) -> Iterable[Any]:
    """Yield the tensors in @value: itself, or those in lists, tuples and dicts."""
    if hasattr(value, "is_cuda"):
        yield value
    elif depth and isinstance(value, dict):
        for one in list(value.values()):
            yield from _tensors(one, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one, depth - 1)


class Labels:
    """The labels of one model and its optimizers; ``remove()`` ends them."""

    def __init__(self, model: Any, optimizer: Any = None) -> None:
        self._model = model
        given = optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]
        self._optimizers: List[Any] = [one for one in given if one is not None]
        self._pools: Dict[int, int] = {}
        self._owned: Set[Tuple[int, int]] = set()       # places of parameters; a view of one is no activation
        self._hooks: List[Any] = []

    def _label(self, text: bytes, tensors: Iterable[Any]) -> Set[Tuple[int, int]]:
        places = {place for place in map(_place, tensors) if place}
        for device in {device for device, _ in places}:
            if not self._pools.get(device):
                self._pools[device] = max(0, int(_library.call("gpumem_pool_find", b"pytorch", device)))
            mine = [address for of, address in places if of == device]
            if self._pools[device]:
                _library.call("gpumem_pool_label", self._pools[device], (ctypes.c_uint64 * len(mine))(*mine), len(mine), text)
        return places

    def step(self) -> None:
        """Label parameters, gradients and optimizer state as they are now. From PyTorch 2.0 on, each step of the
        optimizer calls this."""
        parameters = list(self._model.parameters())
        self._owned = self._label(b"parameter", parameters)
        self._label(b"gradient", [p.grad for p in parameters if getattr(p, "grad", None) is not None])
        for optimizer in self._optimizers:
            state = getattr(optimizer, "state", None)
            if state:
                kept = [one for one in _tensors(dict(state)) if _place(one) not in self._owned]
                self._label(b"optimizer state", kept)

    def _gradient(self, parameter: Any) -> None:
        if getattr(parameter, "grad", None) is not None:
            self._label(b"gradient", [parameter.grad])

    def _activation(self, _module: Any, _inputs: Any, output: Any) -> None:
        """Label what a module returned. Returns None, so that the module's result stays."""
        kept = [one for one in _tensors(output) if getattr(one, "requires_grad", False) and _place(one) not in self._owned]
        if kept:
            self._label(b"activation", kept)

    def begin(self) -> "Labels":
        """Set the hooks, and label what there is."""
        for parameter in self._model.parameters():
            hook = getattr(parameter, "register_post_accumulate_grad_hook", None)
            if hook and getattr(parameter, "requires_grad", False):
                self._hooks.append(hook(self._gradient))
        for module in self._model.modules():
            self._hooks.append(module.register_forward_hook(self._activation))
        for optimizer in self._optimizers:
            hook = getattr(optimizer, "register_step_post_hook", None)
            if hook:
                self._hooks.append(hook(lambda *_: self.step()))
        self.step()
        return self

    def remove(self) -> None:
        """Remove the hooks. Blocks keep the labels that they have."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []


def label(model: Any, optimizer: Any = None) -> Labels:
    """Label the tensors of ``model`` (a torch.nn.Module) and of ``optimizer`` from now on, until ``remove()``.

    ``optimizer`` is an optimizer, a list of several, or None. With None, parameters are labelled as they are
    now, and gradients and activations as they come. Call it once for each model, after the model is in its
    place (after ``model.cuda()``). Without the library it sets no hook.
    """
    made = Labels(model, optimizer)
    return made.begin() if available() else made
