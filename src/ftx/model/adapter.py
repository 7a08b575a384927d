"""The adapter: attached by us after seeding, so that the seed decides its start values; saved so that PEFT reads it.

TRL would attach it before anything is seeded.
"""

import shutil
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ftx.errors import ModelError

ALL_LINEAR = ["all-linear"]


def attach_adapter(
    model: Any, *, variant: str, rank: int, alpha: float, dropout: float, target_modules: Sequence[str]
) -> Any:
    """Put a LoRA adapter of the given `variant` on `model`; the base weights no longer train.

    Raises:
        ModelError: a name in `target_modules` that no linear layer has.
    """
    from peft import LoraConfig, get_peft_model

    targets = list(target_modules)
    refuse_unmatched(model, targets)
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=dropout,
        target_modules="all-linear" if targets == ALL_LINEAR else targets,
        use_rslora=variant == "rslora",
        use_dora=variant == "dora",
        init_lora_weights="pissa" if variant == "pissa" else True,
        task_type="CAUSAL_LM",
    )
    adapted = get_peft_model(model, config)
    # No embedding is trained. Asked to find that out for itself, PEFT looks at the Hub whenever it saves.
    adapted.save_pretrained = partial(adapted.save_pretrained, save_embedding_layers=False)
    return adapted


def adapted_modules(model: Any) -> dict[str, int]:
    """How many layers of each name carry the adapter, for the record."""
    names = (name.rpartition(".")[2] for name, module in model.named_modules() if hasattr(module, "lora_A"))
    return dict(Counter(names))


class AdapterSaver:
    """Saves what was trained so that `from_pretrained` gives the same model on the original base weights.

    PiSSA moves part of the base weights into the adapter. A plain adapter is then the difference between the
    trained one and its start values, which lie in `scratch` until it is saved.
    """

    def __init__(self, model: Any, variant: str, scratch: Path) -> None:
        self._start = scratch / "pissa_start" if variant == "pissa" else None
        if self._start is not None:
            config = model.peft_config["default"]
            # While this says "pissa", PEFT would decompose the base weights again on loading the start values.
            config.init_lora_weights = True
            model.save_pretrained(str(self._start))
            config.init_lora_weights = "pissa"

    def save(self, model: Any, tokenizer: Any, folder: Path) -> None:
        """Write the adapter (or, for lora=none, all weights) and the tokenizer with its template to `folder`."""
        if self._start is None:
            model.save_pretrained(str(folder))
        else:
            model.save_pretrained(str(folder), path_initial_model_for_weight_conversion=str(self._start))
            shutil.rmtree(self._start)
        tokenizer.save_pretrained(str(folder))


def parameter_counts(model: Any) -> dict[str, int]:
    """Trainable parameters and all parameters."""
    return {
        "trainable": sum(weight.numel() for weight in model.parameters() if weight.requires_grad),
        "all": sum(weight.numel() for weight in model.parameters()),
    }


def targeted_layers(model: Any, targets: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Input and output width by name of every linear layer that `targets` means, the output head aside."""
    layers = _linear_layers(model)
    if list(targets) == ALL_LINEAR:
        return layers
    return {name: widths for name, widths in layers.items() if any(_means(target, name) for target in targets)}


def refuse_unmatched(model: Any, targets: Sequence[str]) -> None:
    """Raise ModelError if a name in `targets` matches no linear layer of `model`, the output head aside."""
    if list(targets) == ALL_LINEAR:
        return
    layers = _linear_layers(model)
    unmatched = [target for target in targets if not any(_means(target, name) for name in layers)]
    if unmatched:
        there = ", ".join(sorted({name.rpartition(".")[2] for name in layers}))
        raise ModelError(
            f"lora.target_modules: no linear layer but the output head is called {', '.join(unmatched)}; "
            f"this model has {there}"
        )


def _linear_layers(model: Any) -> dict[str, tuple[int, int]]:
    from torch.nn import Linear
    from transformers.pytorch_utils import Conv1D

    head = model.get_output_embeddings()
    found = {}
    for name, layer in model.named_modules():
        if layer is not head and isinstance(layer, (Linear, Conv1D)):
            first, second = layer.weight.shape
            found[name] = (first, second) if isinstance(layer, Conv1D) else (second, first)
    return found


def _means(target: str, name: str) -> bool:
    """As PEFT reads a target: a layer's whole name, or the end of it."""
    return name == target or name.endswith(f".{target}")
