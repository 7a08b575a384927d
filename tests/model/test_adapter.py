"""Adapters: start values by the seed, fp32 on a bf16 base, and targets that exist."""

from importlib import resources
from typing import Any

import pytest
import torch
from transformers import set_seed

from ftx.config.command_line import parse_command_line
from ftx.config.compose import compose_run
from ftx.config.schema import ModelConfig
from ftx.errors import ModelError
from ftx.job.finetune import build_model
from ftx.job.hardware import resolve_hardware
from ftx.model.adapter import adapted_modules, parameter_counts
from ftx.model.base import context_length, identity, load_tokenizer

pytestmark = pytest.mark.train

BUNDLED = ModelConfig(name="tiny", bundled=True)


def built(*words: str, seed: int = 0) -> Any:
    set_seed(seed)
    return build_model(resolve_hardware(compose_run(parse_command_line(["hardware=cpu", *words]))))


def start_values(model: Any) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for name, weight in model.named_parameters() if "lora_A" in name])


def test_the_seed_decides_the_start_values() -> None:
    assert torch.equal(start_values(built(seed=1)), start_values(built(seed=1)))
    assert not torch.equal(start_values(built(seed=1)), start_values(built(seed=2)))


def test_a_bf16_base_carries_an_fp32_adapter() -> None:
    model = built("hardware.precision=bf16")
    kinds = {weight.requires_grad: weight.dtype for weight in model.parameters()}
    assert kinds == {True: torch.float32, False: torch.bfloat16}


def test_all_weights_stay_fp32_whatever_the_precision() -> None:
    model = built("lora=none", "hardware.precision=bf16")
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert parameter_counts(model)["trainable"] == parameter_counts(model)["all"]


def test_all_linear_layers_but_the_head_are_adapted() -> None:
    names = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    assert adapted_modules(built()) == dict.fromkeys(names, 4)
    assert adapted_modules(built("lora.target_modules=[v_proj]")) == {"v_proj": 4}


@pytest.mark.parametrize("targets", ["[q_proj,FAKE]", "[proj]", "[lm_head]"])
def test_a_name_that_matches_no_layer_is_refused(targets: str) -> None:
    with pytest.raises(ModelError, match=r"no linear layer but the output head is called .*; this model has down_proj"):
        built(f"lora.target_modules={targets}")


def test_the_bundled_model_is_small_and_needs_no_network() -> None:
    folder = resources.files("ftx") / "bundled" / "tiny"
    assert sum(len(file.read_bytes()) for file in folder.iterdir() if file.is_file()) <= 4_000_000
    assert context_length(BUNDLED) == 512
    tokenizer = load_tokenizer(BUNDLED)
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert identity(BUNDLED).startswith("sha256:")


def test_a_prefix_of_turns_is_a_prefix_of_the_bundled_templates_ids() -> None:
    tokenizer = load_tokenizer(BUNDLED)
    turns = [{"role": "user", "content": "two mugs"}, {"role": "assistant", "content": "{}"}]
    turns = [{"role": "system", "content": "be brief"}, *turns, *turns]
    whole = tokenizer.apply_chat_template(turns, return_dict=False)
    for count in (2, 4):
        prefix = tokenizer.apply_chat_template(turns[:count], add_generation_prompt=True, return_dict=False)
        assert whole[: len(prefix)] == prefix
