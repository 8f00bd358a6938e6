"""Write today's numbers: ``python -m tests.golden.record``.

Only in a commit of its own, which says why a number changes.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file

from tests.golden import adapter

FILE = Path(__file__).parent / "numbers.safetensors"
NAMES = Path(__file__).parent / "names.txt"


def main():
    """Compute every group, and write all of it."""
    torch.set_num_threads(1)
    found = {
        f"{group}:{name}": tensor.detach().contiguous()
        for group, compute in adapter.groups().items()
        for name, tensor in compute().items()
    }
    save_file(found, FILE)
    NAMES.write_text("\n".join(sorted(adapter.names())) + "\n", "utf8")
    print(f"{len(found)} tensors, {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
