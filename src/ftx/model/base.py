"""The base model and its tokenizer: where they are, and that they can be had before anything is paid for."""

import hashlib
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from ftx.config.checks import is_local_model
from ftx.config.schema import ModelConfig
from ftx.errors import ModelError

IDENTITY_FILES = ("*.safetensors", "*.bin", "*.json", "*.jinja", "*.model", "*.txt", "*.py")


def location(config: ModelConfig) -> str:
    """What `from_pretrained` takes: the bundled folder, a local one, or the Hub name."""
    name = str(config.name)
    if config.bundled:
        return str(Path(str(resources.files("ftx"))) / "bundled" / name)
    # Absolute, because the saved adapter names its base, and is loaded from anywhere.
    return str(Path(name).expanduser().resolve()) if is_local_model(name) else name


def identity(config: ModelConfig) -> str:
    """What the weights are, whatever they are called: a hash of a folder's files, or the Hub commit.

    Of a Hub model only its configuration is fetched here, so that a wrong name or a missing network is found
    before a run directory exists.

    Raises:
        ModelError: a Hub model that cannot be had.
    """
    where = location(config)
    folder = Path(where)
    if folder.is_dir():
        return f"sha256:{_folder_sha256(folder)}"
    return f"commit:{_hub_commit(where, config.revision)}"


def _folder_sha256(folder: Path) -> str:
    digest = hashlib.sha256()
    files = sorted({path for pattern in IDENTITY_FILES for path in folder.glob(pattern) if path.is_file()})
    for path in files:
        with path.open("rb") as stream:
            digest.update(f"{path.name}\n{hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def _hub_commit(name: str, revision: str | None) -> str:
    from huggingface_hub import hf_hub_download  # half a second, and only for Hub models
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        path = Path(hf_hub_download(name, "config.json", revision=revision))
    except (LocalEntryNotFoundError, OSError, HfHubHTTPError, ValueError) as error:
        at = f" at revision {revision}" if revision else ""
        raise ModelError(
            f"model.name={name}{at} cannot be had from the Hugging Face Hub ({type(error).__name__}): check the "
            "name and the network, or give a local folder (model=hub model.name=./FOLDER); model=tiny is bundled"
        ) from error
    return path.parent.name  # .../snapshots/COMMIT/config.json


def load_tokenizer(config: ModelConfig) -> Any:
    """The model's tokenizer. Where it has no pad token, the end token pads; the labels tell them apart."""
    from transformers import AutoTokenizer

    tokenizer = _load(AutoTokenizer, config)
    if tokenizer.eos_token_id is None:
        raise ModelError(f"model.name={config.name}: its tokenizer has no end token, so an answer could never end")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(config: ModelConfig, dtype: str) -> Any:
    """The causal language model with weights in `dtype` ("fp32" or "bf16"), on the CPU."""
    import torch
    from transformers import AutoModelForCausalLM

    kernel = None if config.attn_implementation == "auto" else config.attn_implementation
    return _load(
        AutoModelForCausalLM,
        config,
        dtype={"fp32": torch.float32, "bf16": torch.bfloat16}[dtype],
        attn_implementation=kernel,
    )


def context_length(config: ModelConfig) -> int | None:
    """The longest sequence the model was made for, in tokens; None where it does not say."""
    from transformers import AutoConfig

    limit = getattr(_load(AutoConfig, config).get_text_config(), "max_position_embeddings", None)
    return int(limit) if limit else None


def skeleton(config: ModelConfig) -> Any:
    """The model's layers without any weights, to look at their names and shapes."""
    return _skeleton(config.name, config.bundled, config.revision, config.trust_remote_code)


@lru_cache(maxsize=4)  # a study asks once an arm, and a Hub model's configuration costs a request each time
def _skeleton(name: str | None, bundled: bool, revision: str | None, trust_remote_code: bool) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = ModelConfig(name=name, bundled=bundled, revision=revision, trust_remote_code=trust_remote_code)
    with torch.device("meta"):
        settings = _load(AutoConfig, config)
        make: Any = AutoModelForCausalLM.from_config
        try:
            return make(settings, trust_remote_code=trust_remote_code)
        except ValueError as error:
            raise ModelError(f"model.name={name} is no causal language model: {_first_line(error)}") from error


def _load(kind: Any, config: ModelConfig, **options: Any) -> Any:
    from transformers.utils import logging

    logging.disable_default_handler()  # its advice is about code that the person did not write
    try:
        return kind.from_pretrained(
            location(config), revision=config.revision, trust_remote_code=config.trust_remote_code, **options
        )
    except (OSError, ValueError, ImportError) as error:
        raise ModelError(f"model.name={config.name} cannot be loaded: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
