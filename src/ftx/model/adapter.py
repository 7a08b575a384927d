"""The adapter: attached by us after seeding, so that the seed decides its start values; saved so that PEFT reads it.

TRL would attach it before anything is seeded.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ftx.errors import ModelError
from ftx.record.checkpoints import written_whole

ALL_LINEAR = ["all-linear"]
PISSA_START = "pissa_start"
"""Folder beside the checkpoints: what the adapter was when it took its part out of the base weights."""


def attach_adapter(
    model: Any,
    *,
    variant: str,
    rank: int,
    alpha: float,
    dropout: float,
    target_modules: Sequence[str],
    pissa_start: Path | None = None,
) -> Any:
    """Put a LoRA adapter of the given `variant` on `model`; the base weights no longer train.

    Args:
        pissa_start: for a run that goes on, where it saved the start values of PiSSA: what they take out of the base
            weights is then the same to the bit, without a decomposition that may come out otherwise elsewhere.

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
        init_lora_weights="pissa" if variant == "pissa" and pissa_start is None else True,
        task_type="CAUSAL_LM",
    )
    adapted = get_peft_model(model, config)
    if pissa_start is not None:
        _take_out(adapted, pissa_start)
    # No embedding is trained. Asked to find that out for itself, PEFT looks at the Hub whenever it saves.
    adapted.save_pretrained = partial(adapted.save_pretrained, save_embedding_layers=False)
    return adapted


def adapted_modules(model: Any) -> dict[str, int]:
    """How many layers of each name carry the adapter, for the record."""
    names = (name.rpartition(".")[2] for name, module in model.named_modules() if hasattr(module, "lora_A"))
    return dict(Counter(names))


def _take_out(adapted: Any, folder: Path) -> None:
    """Give the adapter PiSSA's start values and take them out of the base weights, as PEFT did when it made them.

    The arithmetic is PEFT's (`LoraLayer.pissa_init`): in fp32, then back to the base's dtype.
    """
    import torch
    from peft.utils import load_peft_weights, set_peft_model_state_dict
    from peft.utils.other import transpose

    set_peft_model_state_dict(adapted, load_peft_weights(str(folder), device="cpu"))
    with torch.no_grad():
        for layer in adapted.modules():
            if not hasattr(layer, "lora_A"):
                continue
            weight, turned = layer.get_base_layer().weight, layer.fan_in_fan_out
            a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
            rest = transpose(weight.to(torch.float32), turned) - layer.scaling["default"] * b @ a
            weight.data = transpose(rest.to(weight.dtype), turned)
    adapted.peft_config["default"].init_lora_weights = "pissa"


def keep_pissa_start(model: Any, folder: Path) -> None:
    """Save the start values of PiSSA, before anything is trained; whole or not at all."""
    config = model.peft_config["default"]
    # While this says "pissa", PEFT would decompose the base weights again on loading the start values.
    config.init_lora_weights = True
    with written_whole(folder, dict) as aside:
        model.save_pretrained(str(aside))
    config.init_lora_weights = "pissa"


def save_trained(model: Any, tokenizer: Any, folder: Path, pissa_start: Path | None = None) -> None:
    """Write the adapter (or, for lora=none, all weights) and the tokenizer with its template to `folder`.

    What is written gives the same model on the original base weights. PiSSA moves part of these into the adapter; a
    plain adapter is then the difference between the trained one and its start values.
    """
    with written_whole(folder) as aside:
        if pissa_start is None:
            model.save_pretrained(str(aside))
        else:
            model.save_pretrained(str(aside), path_initial_model_for_weight_conversion=str(pissa_start))
        tokenizer.save_pretrained(str(aside))


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
