"""What a function calls of PyTorch, and how large what comes back is.

The check and the sandbox's child both use it.
"""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Watch(TorchDispatchMode):
    """Keeps, for each operation, the size of its largest result."""

    def __init__(self) -> None:
        super().__init__()
        self.used: dict[str, int] = {}
        """Elements of the largest result, by name: ``{"aten.mm": 35}``."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Let the operation happen, and take a look at its result."""
        result = func(*args, **(kwargs or {}))
        name = str(func.overloadpacket)
        several = isinstance(result, (tuple, list))
        for one in result if several else [result]:
            if isinstance(one, torch.Tensor):
                size = max(self.used.get(name, 0), one.numel())
                self.used[name] = size
        return result
