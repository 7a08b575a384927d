"""The loss is TRL's, the gradient does not depend on how a step is split into passes, evaluation not on its batches."""

from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from ftx.data.render import IGNORED
from ftx.job.checkpointing import Checkpoints, Spent
from ftx.job.trainer import SupervisedTrainer, random_state_kept
from ftx.model.adapter import attach_adapter
from ftx.record.layout import RunDir

pytestmark = pytest.mark.train

TINY = str(resources.files("ftx") / "bundled" / "tiny")


def rows(count: int) -> list[dict[str, list[int]]]:
    """Rows of unequal length, of which the second half is supervised."""
    made = []
    for number in range(count):
        ids = [(number * 7 + position) % 200 + 10 for position in range(12 + 5 * (number % 4))]
        half = len(ids) // 2
        made.append({"input_ids": ids, "labels": [IGNORED] * half + ids[half:]})
    return made


def trainer(
    folder: Path,
    kind: type[SFTTrainer] = SupervisedTrainer,
    *,
    micro: int = 4,
    passes: int = 1,
    count: int = 4,
    eval_batch: int = 4,
    dropout: float = 0.0,
    **settings: Any,
) -> SFTTrainer:
    set_seed(0)
    torch.set_num_threads(1)
    model = attach_adapter(
        AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32),
        variant="standard",
        rank=4,
        alpha=8,
        dropout=dropout,
        target_modules=["all-linear"],
    )
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    arguments = SFTConfig(
        output_dir=str(folder),
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=passes,
        per_device_eval_batch_size=eval_batch,
        learning_rate=1e-3,
        num_train_epochs=2,
        use_cpu=True,
        bf16=False,
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        max_grad_norm=1.0,
        **{"gradient_checkpointing": False, **settings},
    )
    data = Dataset.from_list(rows(count))
    ours = {"checkpoints": Checkpoints(RunDir(folder), 2, {}, Spent())} if kind is SupervisedTrainer else {}
    return kind(
        model=model,
        args=arguments,
        train_dataset=data,
        eval_dataset=data,
        processing_class=tokenizer,
        data_collator=DataCollatorForLanguageModeling(pad_token_id=tokenizer.pad_token_id),
        **ours,
    )


def steps(made: SFTTrainer) -> list[tuple[float, float]]:
    """Loss and gradient norm of each optimiser step."""
    made.train()
    return [(entry["loss"], entry["grad_norm"]) for entry in made.state.log_history if "loss" in entry]


def test_losses_and_gradients_are_those_of_trl(tmp_path: Path) -> None:
    ours, theirs = steps(trainer(tmp_path / "a", count=8)), steps(trainer(tmp_path / "b", SFTTrainer, count=8))
    assert len(ours) == 4
    assert torch.allclose(torch.tensor(ours), torch.tensor(theirs), rtol=1e-5)


@pytest.mark.parametrize("count", [4, 6], ids=["full windows", "last window not full"])
def test_a_step_is_the_same_however_many_passes_make_it(tmp_path: Path, count: int) -> None:
    whole = steps(trainer(tmp_path, micro=4, passes=1, count=count))
    for micro, passes in ((2, 2), (1, 4)):
        split = steps(trainer(tmp_path, micro=micro, passes=passes, count=count))
        assert torch.allclose(torch.tensor(split), torch.tensor(whole), rtol=1e-4)


def test_evaluation_is_a_token_mean_whatever_the_batches(tmp_path: Path) -> None:
    found = [trainer(tmp_path, count=7, eval_batch=size).evaluate() for size in (1, 3, 7)]
    assert max(each["eval_loss"] for each in found) == pytest.approx(min(each["eval_loss"] for each in found), rel=1e-6)
    assert len({each["eval_token_accuracy"] for each in found}) == 1

    made = trainer(tmp_path, count=7)
    total, count = 0.0, 0
    for row in rows(7):
        ids, labels = torch.tensor([row["input_ids"]]), torch.tensor([row["labels"]])
        with torch.no_grad():
            logits = made.model(input_ids=ids).logits[0, :-1]
        total += float(torch.nn.functional.cross_entropy(logits, labels[0, 1:], ignore_index=IGNORED, reduction="sum"))
        count += int((labels[0, 1:] != IGNORED).sum())
    assert made.evaluate()["eval_loss"] == pytest.approx(total / count, rel=1e-5)


def test_looking_does_not_change_the_run(tmp_path: Path) -> None:
    plain = steps(trainer(tmp_path, count=8, dropout=0.3))
    watched = steps(trainer(tmp_path, count=8, dropout=0.3, eval_strategy="steps", eval_steps=1, eval_on_start=True))
    assert plain == watched


def test_the_random_state_is_given_back() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    with random_state_kept():
        torch.rand(10)
    assert torch.equal(torch.rand(3), expected)


def test_every_adapter_moves_also_under_gradient_checkpointing(tmp_path: Path) -> None:
    made = trainer(tmp_path / "a", count=8, gradient_checkpointing=True)
    made.model.enable_input_require_grads()
    recomputed = steps(made)
    norms = [float(weight.detach().norm()) for name, weight in made.model.named_parameters() if "lora_B" in name]
    assert made.model.is_gradient_checkpointing
    assert min(norms) > 0
    assert torch.allclose(torch.tensor(recomputed), torch.tensor(steps(trainer(tmp_path / "b", count=8))), rtol=1e-5)
