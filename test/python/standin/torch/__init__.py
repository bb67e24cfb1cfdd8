"""A stand-in for PyTorch: tensors of CUDA by the driver, reported as PyTorch's pool reports them; modules, hooks, one optimizer.
It has what gpumem.torch uses, with PyTorch's names, and as much as makes a step of a training."""
import gpumem
from host import alloc, free

_pool = gpumem.Pool("pytorch", device=0)


class _Device:
    index = 0


class _Storage:
    def __init__(self, size):
        self.size, self.address = size, alloc(size)
        assert _pool.allocated(self.address, size) or not gpumem.available()

    def data_ptr(self):
        return self.address

    def __del__(self):
        _pool.freed(self.address)
        free(self.address)


class Handle:
    def __init__(self, hooks, hook):
        self.hooks, self.hook = hooks, hook
        hooks.append(hook)

    def remove(self):
        self.hooks.remove(self.hook)


class Tensor:
    is_cuda, device = True, _Device()

    def __init__(self, size, requires_grad=False, storage=None):
        self._storage, self.size, self.requires_grad, self.grad, self._hooks = storage or _Storage(size), size, requires_grad, None, []

    def untyped_storage(self):
        return self._storage

    def data_ptr(self):
        return self._storage.address + 256      # of a view, say: not where the block begins

    def view(self):
        return Tensor(self.size, self.requires_grad, self._storage)

    def register_post_accumulate_grad_hook(self, hook):
        return Handle(self._hooks, hook)

    def __eq__(self, other):
        raise TypeError("tensors are compared one by one")

    __hash__ = object.__hash__


class Module:
    def __init__(self, size, children=()):
        self.weight, self.children, self.hooks = Tensor(size, True), list(children), []

    def modules(self):
        yield self
        for child in self.children:
            yield from child.modules()

    def parameters(self):
        return [module.weight for module in self.modules()]

    def register_forward_hook(self, hook):
        return Handle(self.hooks, hook)

    def __call__(self, value):
        saved = []
        for child in self.children:
            saved += child(value)["saved"]
        output = {"saved": saved + [Tensor(self.weight.size * 3, True)], "tied": (self.weight.view(),), "mask": Tensor(100)}
        for hook in self.hooks:
            assert hook(self, (value,), output) is None
        return output


def backward(model):
    for p in model.parameters():
        p.grad = Tensor(p.size)
        for hook in p._hooks:
            hook(p)


class Adam:
    def __init__(self, parameters):
        self.parameters, self.state, self.hooks = parameters, {}, []

    def register_step_post_hook(self, hook):
        return Handle(self.hooks, hook)

    def step(self):
        for p in self.parameters:
            self.state.setdefault(p, {"step": 1, "exp_avg": Tensor(p.size), "exp_avg_sq": Tensor(p.size)})
        for hook in self.hooks:
            hook(self, (), {})
