"""Build the bundled tiny model: train its tokenizer, pretrain it on made-up orders, write the model folder.

The corpus pairs order sentences with their fields in many layouts: lines, prose, JSON with some of the keys in
any order. So the model can copy and can write JSON, and has no preference for the one layout that the `orders`
dataset asks for: that, and the wordings only the dataset uses, is left to fine-tuning. Without any JSON here,
LoRA can't learn it from 156 rows.

    python scripts/build_tiny_model.py --out src/ftx/bundled/tiny
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from orders_text import ORDERS_VOICE, PLAIN_VOICE, FieldValue, Order, describe, sample_order

PAD, END, SYSTEM, USER, ASSISTANT = "<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"
VOCAB_SIZE = 768
MAX_POSITIONS = 512
ROWS_PER_STEP = 16
MATRIX_LEARNING_RATE = 5e-3
OTHER_LEARNING_RATE = 3e-3
WARMUP_STEPS = 50
INPUT_AMPLIFICATION = 8
BATCHES_PER_CHUNK = 32
IGNORED_LABEL = -100

# Every boundary is a special token, which no neighbouring text can merge with: the tokens of a conversation's
# opening turns are always a prefix of the tokens of the whole.
CHAT_TEMPLATE = """\
{%- for message in messages -%}
{%- if message['role'] == 'assistant' -%}
{{- '<|assistant|>' -}}{%- generation -%}{{- message['content'] + '<|end|>' -}}{%- endgeneration -%}
{%- elif message['role'] in ('system', 'user') -%}
{{- '<|' + message['role'] + '|>' + message['content'] + '<|end|>' -}}
{%- else -%}
{{- raise_exception('unknown role: ' + message['role']) -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"""

Document = tuple[str, str]


def field_values(order: Order, rng: random.Random) -> dict[str, FieldValue]:
    """Some of the order's fields in any order."""
    fields = order.fields()
    keys = rng.sample(sorted(fields), rng.randint(4, len(fields)))
    return {key: fields[key] for key in keys}


def as_json(fields: FieldValue | dict[str, FieldValue]) -> str:
    """One line of JSON without blanks."""
    return json.dumps(fields, separators=(",", ":"))


def as_lines(fields: dict[str, FieldValue]) -> str:
    """One `name: value` per line."""
    return "\n".join(f"{name}: {as_json(value)}" for name, value in fields.items())


def as_prose(fields: dict[str, FieldValue]) -> str:
    """`name is value; name is value`."""
    return "; ".join(f"{name} is {as_json(value)}" for name, value in fields.items())


LAYOUTS: tuple[Callable[[dict[str, FieldValue]], str], ...] = (as_json, as_json, as_lines, as_prose)


def sample_document(rng: random.Random) -> Document:
    """A chat in which the user words an order and the assistant answers with a selection of its fields."""
    order = sample_order(rng, n_lines=rng.choice((1, 2, 2, 3, 3, 4)), change_share=0.15)
    answer = rng.choice(LAYOUTS)(field_values(order, rng))
    return USER + describe(order, PLAIN_VOICE, rng) + END, ASSISTANT + answer + END


def train_tokenizer(rng: random.Random, *, n_documents: int = 4000) -> PreTrainedTokenizerFast:
    """Byte-level BPE fitted to both voices, so that the dataset's wordings aren't spelled byte by byte."""
    texts: list[str] = []
    for _ in range(n_documents):
        order = sample_order(rng, n_lines=rng.randint(1, 4), change_share=0.25)
        texts += [describe(order, ORDERS_VOICE, rng, n_asides=1), as_json(field_values(order, rng))]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCAB_SIZE,
            special_tokens=[PAD, END, SYSTEM, USER, ASSISTANT],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT],
        model_max_length=MAX_POSITIONS,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def new_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """A randomly initialised Llama of 1.3 million parameters."""
    token_ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=160,
        intermediate_size=432,
        num_hidden_layers=4,
        num_attention_heads=5,
        num_key_value_heads=5,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
        bos_token_id=None,
        **token_ids,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        do_sample=False, **token_ids
    )
    return model


def batches(tokenizer: PreTrainedTokenizerFast, rng: random.Random) -> Iterator[dict[str, torch.Tensor]]:
    """Endless batches of fresh documents, cut from chunks sorted by length to keep padding low."""
    while True:
        rows = [encode(tokenizer, sample_document(rng)) for _ in range(BATCHES_PER_CHUNK * ROWS_PER_STEP)]
        rows.sort(key=lambda row: len(row[0]))
        starts = list(range(0, len(rows), ROWS_PER_STEP))
        rng.shuffle(starts)
        for start in starts:
            yield collate(rows[start : start + ROWS_PER_STEP], pad_id=int(tokenizer.pad_token_id))


def encode(tokenizer: PreTrainedTokenizerFast, document: Document) -> tuple[list[int], list[int]]:
    """Input ids and labels. The sentence isn't a target: guessing who orders what teaches nothing useful."""
    sentence, fields = (tokenizer.encode(part, add_special_tokens=False) for part in document)
    return sentence + fields, [IGNORED_LABEL] * len(sentence) + fields


def collate(rows: Sequence[tuple[list[int], list[int]]], *, pad_id: int) -> dict[str, torch.Tensor]:
    """Rows padded on the right. Attention is causal: no real token sees the padding, no mask is needed."""
    width = max(len(input_ids) for input_ids, _ in rows)
    input_ids = [ids + [pad_id] * (width - len(ids)) for ids, _ in rows]
    labels = [row + [IGNORED_LABEL] * (width - len(row)) for _, row in rows]
    return {"input_ids": torch.tensor(input_ids), "labels": torch.tensor(labels)}


def learning_rate_share(step: int, n_steps: int) -> float:
    """Share of the peak learning rate at a step: linear warmup, under a cosine to zero."""
    warmup = min(1.0, (step + 1) / WARMUP_STEPS)
    return warmup * 0.5 * (1 + math.cos(math.pi * step / n_steps))


def new_optimizers(model: LlamaForCausalLM) -> list[torch.optim.Optimizer]:
    """Muon for the matrices, which needs about half of AdamW's steps here, and AdamW for the rest."""
    matrices = [weight for layer in model.model.layers for weight in layer.parameters() if weight.ndim == 2]
    matrix_ids = {id(weight) for weight in matrices}
    others = [weight for weight in model.parameters() if id(weight) not in matrix_ids]
    return [
        torch.optim.Muon(matrices, lr=MATRIX_LEARNING_RATE, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=OTHER_LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01),
    ]


def pretrain(model: LlamaForCausalLM, source: Iterator[dict[str, torch.Tensor]], *, n_steps: int) -> None:
    """Train in place and print the loss now and then."""
    optimizers = new_optimizers(model)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_share(step, n_steps))
        for optimizer in optimizers
    ]
    model.train()
    started = time.perf_counter()
    running_loss = 0.0
    for step in range(n_steps):
        loss = model(**next(source)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        running_loss = loss.item() if step == 0 else 0.98 * running_loss + 0.02 * loss.item()
        if (step + 1) % 100 == 0:
            seconds = time.perf_counter() - started
            print(f"step {step + 1}/{n_steps}  loss {running_loss:.4f}  {seconds:.0f} s", flush=True)


def amplify_inputs(model: LlamaForCausalLM, factor: int) -> None:
    """Make linear layers read inputs `factor` times as large through weights as much smaller.

    The model's outputs stay what they were, to the bit for a power of two, but an adapter's update of a given size
    moves them further. How far an update reaches grows with a layer's width, so this lets layers 160 wide answer to
    the learning rates that suit layers of some thousands. The value and up projections keep their weights: it's
    through them that the output and down projections get larger inputs.
    """
    with torch.no_grad():
        for layer in model.model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            for norm in (layer.input_layernorm, layer.post_attention_layernorm):
                norm.weight.mul_(factor)
            for reader in (attention.q_proj, attention.k_proj, attention.o_proj, mlp.gate_proj, mlp.down_proj):
                reader.weight.div_(factor)


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the model folder, its weights in bfloat16 to halve what the repository carries."""
    model.bfloat16().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    """Parse the command line and build the folder."""
    parser = argparse.ArgumentParser(description="Build the bundled tiny model.")
    parser.add_argument("--out", type=Path, default=Path("src/ftx/bundled/tiny"), help="folder to write")
    parser.add_argument("--steps", type=int, default=2400, help="pretraining steps")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(arguments.seed)
    rng = random.Random(arguments.seed)
    tokenizer = train_tokenizer(rng)
    model = new_model(tokenizer)
    pretrain(model, batches(tokenizer, rng), n_steps=arguments.steps)
    amplify_inputs(model, INPUT_AMPLIFICATION)
    save(model, tokenizer, arguments.out)


if __name__ == "__main__":
    main()
