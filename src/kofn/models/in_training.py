"""A model that is being trained in this process: evaluated without gradients and left in the state it was found in."""

from __future__ import annotations

import threading
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.models.local_folders import load_torch

if TYPE_CHECKING:
    from collections.abc import Iterator

# Actor and critic may be two faces of one model, so that all models of this kind are used one at a time.
_ONE_AT_A_TIME = threading.RLock()


class ModelInTraining:
    """A model in memory, used with one adapter on, with all adapters off, or as it is."""

    def __init__(self, model: Any, adapter: str | None = None, *, disable_adapter: bool = False) -> None:
        self.model = _inside(model)
        self.adapter, self.off = adapter, disable_adapter
        known = list(getattr(self.model, "peft_config", {}))
        if adapter is not None and adapter not in known:
            raise InputError(f"the model has no adapter {adapter!r}: it has {', '.join(known) or 'none'}")
        if disable_adapter and not hasattr(self.model, "disable_adapter"):
            raise InputError("disable_adapter: the model is not a PeftModel, so that it has no adapter to turn off")

    @property
    def device(self) -> str:
        """Where its first parameter is."""
        return str(next(self.model.parameters()).device)

    def confirm(self, device: Any) -> None:
        """Refuse a device other than the one that the model is on."""
        if device is not None and load_torch().device(device).type != self.device.partition(":")[0]:
            raise InputError(f"device {str(device)!r}: the model is on {self.device}: move it there first")

    def describe(self) -> dict[str, Any]:
        """What a manifest can say of a model that changes."""
        description = {"live": type(self.model).__name__, "device": self.device}
        return {
            **description,
            "adapter": None if self.off else self.adapter or getattr(self.model, "active_adapter", None),
        }

    def close(self) -> None:
        """Do nothing: the model belongs to the training loop."""

    @contextmanager
    def using(self) -> Iterator[Any]:
        """The model in evaluation mode.

        Afterwards every module is in the mode it was in, every parameter as trainable as it was, and the same adapter
        is on. There is no gradient, but no inference mode either: what a model keeps from it could not be trained on.
        """
        torch = load_torch()
        with _ONE_AT_A_TIME, torch.no_grad():
            modes = [(module, module.training) for module in self.model.modules()]
            trainable = [(parameter, parameter.requires_grad) for parameter in self.model.parameters()]
            before = getattr(self.model, "active_adapter", None)
            try:
                self.model.eval()
                if self.adapter is not None:
                    self.model.set_adapter(self.adapter)
                with self.model.disable_adapter() if self.off else nullcontext():
                    yield self.model
            finally:
                if self.adapter is not None:
                    self.model.set_adapter(before)
                for module, mode in modes:
                    module.training = mode
                for parameter, was in trainable:
                    parameter.requires_grad_(was)


def weights_digest(model: Any) -> str:
    """Eight hex digits that change when a model is trained on: made of the sum of every parameter."""
    from hashlib import blake2b

    torch = load_torch()
    sums = [
        torch.sum(p.detach(), dtype=torch.float32 if p.device.type == "mps" else torch.float64).item()
        for p in _inside(model).parameters()
    ]
    return blake2b(repr(sums).encode(), digest_size=4).hexdigest()


def _inside(model: Any) -> Any:
    """The model itself, out of what distributed training or compilation wraps around it."""
    torch = load_torch()
    while True:
        if isinstance(model, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
            model = model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
        else:
            return model
