"""The longest batch is rehearsed as a step of training would take it, and the run that follows is the same run."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from ftx.config.command_line import parse_command_line
from ftx.config.compose import compose_run
from ftx.job import rehearsal
from ftx.job.endings import StopRequest, ending_of
from ftx.job.finetune import build_model, build_trainer, checkpoints_for, run_finetune, seed_everything
from ftx.job.hardware import resolve_hardware
from ftx.job.preparation import Preparation, prepare_run
from ftx.job.rehearsal import rehearse
from ftx.job.results import Outcome
from ftx.job.trainer import SupervisedTrainer
from ftx.model.adapter import parameter_counts
from ftx.record.history import read_history
from ftx.record.layout import RunDir
from ftx.report.progress import Progress

pytestmark = pytest.mark.train


def prepared(*words: str) -> Preparation:
    always = ("hardware=cpu", "hardware.threads=1", "debug=smoke", "score=none", "optim.lr=2e-3")
    return prepare_run(resolve_hardware(compose_run(parse_command_line([*always, *words]))), [])


def built(folder: Path, *words: str) -> SupervisedTrainer:
    ready = prepared(*words)
    seed_everything(ready.config)
    run, silent = RunDir(folder), Progress(Console(file=io.StringIO()))
    return build_trainer(ready, build_model(ready.config), run, [], silent, checkpoints_for(ready, run))


def lengths(trainer: SupervisedTrainer) -> list[int]:
    return [len(row["input_ids"]) for row in trainer.train_dataset]


def trained(folder: Path, *words: str) -> tuple[Outcome, str]:
    """A whole run in this process: what came out, and what was said."""
    said = io.StringIO()
    folder.mkdir()
    outcome = run_finetune(prepared(*words), RunDir(folder), [], Progress(Console(file=said)), StopRequest())
    return outcome, said.getvalue()


@pytest.mark.parametrize(
    "words",
    [
        ["lora=dora", "lora.dropout=0.1", "hardware.micro_batch_size=2"],
        ["lora=none", "hardware.precision=bf16"],
        pytest.param(["lora=pissa"], marks=pytest.mark.slow),
        pytest.param(["lora=none"], marks=pytest.mark.slow),
        pytest.param(["hardware.gradient_checkpointing=true"], marks=pytest.mark.slow),
        pytest.param(["optim=adafactor"], marks=pytest.mark.slow),
    ],
    ids=["dora", "none-bf16", "pissa", "none", "gradient-checkpointing", "adafactor"],
)
@pytest.mark.filterwarnings("ignore:PiSSA changes the base weights:UserWarning")  # PEFT's, on every conversion
def test_a_rehearsed_run_is_the_same_run(tmp_path: Path, words: list[str]) -> None:
    folders = {word: tmp_path / word for word in ("true", "false")}
    outcomes = {word: trained(folder, f"preflight={word}", *words) for word, folder in folders.items()}
    (with_it, said), (without, unsaid) = outcomes["true"], outcomes["false"]
    assert losses(folders["true"]) == losses(folders["false"])
    left, right = (weights(folder) for folder in folders.values())
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert with_it.result == without.result
    assert {name: with_it.cost[name] for name in ("tokens", "trained_tokens", "steps")} == {
        name: without.cost[name] for name in ("tokens", "trained_tokens", "steps")
    }
    assert with_it.cost["rehearsal_peak_memory_bytes"] > 2**20
    assert "rehearsal_peak_memory_bytes" not in without.cost
    assert "longest batch: " in said
    assert "longest batch: " not in unsaid
    assert not list((folders["true"] / "checkpoints").glob("trial-*"))


def losses(folder: Path) -> list[tuple[int, str, float, float | None]]:
    events, problems = read_history(RunDir(folder).history)
    assert problems == []
    return [(each.step, each.split, each.metrics["loss"], each.metrics.get("grad_norm")) for each in events]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    (file,) = [*folder.glob("adapter/*.safetensors"), *folder.glob("model/*.safetensors")]
    return load_file(file)


def test_the_longest_rows_are_taken_and_nothing_is_changed(tmp_path: Path) -> None:
    trainer = built(tmp_path, "hardware.micro_batch_size=4", "lora.dropout=0.1")
    tokens = lengths(trainer)
    seen: list[torch.Tensor] = []
    collate = trainer.data_collator
    trainer.data_collator = lambda rows: (
        seen.append(torch.tensor([len(row["input_ids"]) for row in rows])) or collate(rows)
    )
    trainer.model.eval()
    state = torch.get_rng_state()

    found = rehearse(trainer, tokens, tmp_path / "scratch")

    assert seen[0].tolist() == sorted(tokens, reverse=True)[:4]
    assert (found.rows, found.tokens_per_row) == (4, max(tokens))
    assert found.seconds > 0
    assert found.peak_memory_bytes is None or found.peak_memory_bytes > 2**20
    assert torch.equal(torch.get_rng_state(), state)
    assert not trainer.model.training
    assert all(weight.grad is None for weight in trainer.model.parameters())
    assert (trainer.spent.tokens, trainer.spent.target_tokens) == (0, 0)
    assert list((tmp_path / "scratch").iterdir()) == []
    trainer.model.save_pretrained(str(tmp_path / "again"))
    assert found.checkpoint_bytes == sum(file.stat().st_size for file in (tmp_path / "again").iterdir())


def test_fewer_rows_than_a_batch_are_all_taken(tmp_path: Path) -> None:
    trainer = built(tmp_path)
    assert rehearse(trainer, lengths(trainer)[:3], tmp_path).rows == 3


def test_the_gradients_are_those_of_a_training_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = built(tmp_path, "lora.dropout=0")
    tokens = lengths(trainer)
    longest = sorted(range(len(tokens)), key=lambda index: -tokens[index])[:8]
    trainer.current_gradient_accumulation_steps = 1  # as trainer.train() sets it
    trainer.training_step(trainer.model, trainer.data_collator([trainer.train_dataset[index] for index in longest]))
    expected = gradients(trainer)
    trainer.model.zero_grad(set_to_none=True)
    kept: list[dict[str, torch.Tensor]] = []
    drop = trainer.model.zero_grad
    monkeypatch.setattr(
        trainer.model, "zero_grad", lambda **options: (kept.append(gradients(trainer)), drop(**options))
    )
    rehearse(trainer, tokens, tmp_path)
    assert kept[0].keys() == expected.keys()
    for name, gradient in expected.items():
        assert torch.allclose(kept[0][name], gradient, rtol=1e-4, atol=1e-7), name
    assert sum(float(gradient.norm()) for gradient in expected.values()) > 0


def gradients(trainer: SupervisedTrainer) -> dict[str, torch.Tensor]:
    return {name: weight.grad.clone() for name, weight in trainer.model.named_parameters() if weight.grad is not None}


def test_it_computes_in_the_precision_of_training(tmp_path: Path) -> None:
    trainer = built(tmp_path, "lora=none", "hardware.precision=bf16")
    kinds: set[torch.dtype] = set()
    layer = trainer.model.model.layers[0].mlp.up_proj
    layer.register_forward_hook(lambda _module, _arguments, output: kinds.add(output.dtype))
    rehearse(trainer, lengths(trainer), tmp_path)
    assert kinds == {torch.bfloat16}


def test_activations_are_recomputed_where_training_does(tmp_path: Path) -> None:
    def forwards(*words: str) -> int:
        trainer = built(tmp_path, *words)
        calls: list[None] = []
        layer = trainer.model.get_base_model().model.layers[0].input_layernorm
        layer.register_forward_hook(lambda *_: calls.append(None))
        rehearse(trainer, lengths(trainer), tmp_path)
        return len(calls)

    assert forwards() == 1
    assert forwards("hardware.gradient_checkpointing=true") == 2


@pytest.mark.parametrize(
    ("words", "copies", "with_gradients"),
    [
        ([], 2, False),
        (["optim=loraplus"], 2, False),
        (["optim=adafactor"], 0, False),
        (["hardware.micro_batch_size=2"], 2, True),
    ],
    ids=["adamw", "loraplus", "adafactor", "several passes"],
)
def test_memory_that_a_later_step_holds_is_stood_in_for(
    tmp_path: Path, words: list[str], copies: int, with_gradients: bool
) -> None:
    trainer = built(tmp_path, *words)
    held = rehearsal._stand_ins(trainer)
    trainable = parameter_counts(trainer.model)["trainable"]
    assert sum(each.nbytes for each in held) == copies * 4 * trainable
    assert sum(each.numel() for each in gradients(trainer).values()) == (trainable if with_gradients else 0)


def fail(error: Exception) -> Callable[..., None]:
    def raise_it(*_arguments: object) -> None:
        raise error

    return raise_it


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    ],
    ids=["accelerator", "cpu"],
)
def test_out_of_memory_names_the_batch_and_the_remedies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    trainer = built(tmp_path, "hardware.micro_batch_size=4")
    monkeypatch.setattr(rehearsal, "supervised_logits", fail(error))
    with pytest.raises(MemoryError) as caught:
        rehearse(trainer, lengths(trainer), tmp_path)
    ending = ending_of(caught.value)
    assert ending.status == "out_of_memory"
    longest = max(lengths(trainer))
    assert ending.reason == (
        f"the longest batch (4 rows of {longest} tokens) does not fit into memory: lower hardware.micro_batch_size=4, "
        "or set hardware.gradient_checkpointing=true, or lower data.max_seq_len"
    )
    assert all(weight.grad is None for weight in trainer.model.parameters())


def test_only_what_can_help_is_proposed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = built(tmp_path, "hardware.micro_batch_size=1", "hardware.gradient_checkpointing=true")
    monkeypatch.setattr(rehearsal, "supervised_logits", fail(MemoryError()))
    with pytest.raises(MemoryError, match=r"does not fit into memory: lower data\.max_seq_len$"):
        rehearse(trainer, lengths(trainer), tmp_path)


def test_other_errors_stay_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = built(tmp_path)
    monkeypatch.setattr(rehearsal, "supervised_logits", fail(RuntimeError("shapes")))
    with pytest.raises(RuntimeError, match=r"^shapes$"):
        rehearse(trainer, lengths(trainer), tmp_path)


def test_a_loss_that_is_not_finite_is_told(tmp_path: Path) -> None:
    trainer = built(tmp_path)
    weight = next(iter(trainer.model.parameters()))
    weight.data.fill_(torch.nan)
    diverged = rehearse(trainer, lengths(trainer), tmp_path).diverged
    assert re.fullmatch(r"the loss of the longest batch \(8 rows of \d+ tokens\) became nan at step 0", str(diverged))
    assert ending_of(diverged).status == "diverged"


def test_what_cannot_be_saved_shows_at_once(tmp_path: Path) -> None:
    trainer = built(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        rehearse(trainer, lengths(trainer), tmp_path / "file")
