"""Makers of training steps by a name: torchvision:NAME, transformers:TYPE, transformers:FILE of a
configuration, module:function.

Models of torchvision and transformers get random weights, and nothing is downloaded. torch and
these libraries are imported only where they are asked for.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

Step = Callable[[], Any]
Maker = Callable[..., Step]

OPTIMIZERS = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "sgd": lambda p, **k: torch.optim.SGD(p, momentum=0.9, **k),
}


@dataclass(frozen=True)
class Training:
    """How a model that is named is trained."""

    optimizer: str = "adamw"
    foreach: bool = True  # all parameters at once, PyTorch's default on GPUs
    dtype: str = "float32"
    size: int = 224  # of an image, in either direction
    tokens: int = 512  # of a text
    checkpoint: bool = False  # torch.utils.checkpoint round each block
    config: dict[str, Any] = field(default_factory=dict)  # of transformers' configuration
    lora: int = 0  # the rank of peft's adapters, beside weights that are frozen; 0: none


def maker_of(name: str, training: Training) -> Maker:
    """A maker, for record() and plan(). Raises ValueError for a name that stands for none."""
    library, found, rest = name.partition(":")
    if not found or not library or not rest:
        raise ValueError(
            f"a model is torchvision:NAME, transformers:NAME or module:function, not {name!r}"
        )
    if training.config and library != "transformers":
        raise ValueError(f"--config is for transformers' models, and {name} is none")
    if training.lora and library != "transformers":
        raise ValueError(f"--lora is for transformers' models, and {name} is none")
    if library == "torchvision":
        return _torchvision(rest, training)
    if library == "transformers":
        return _transformers(rest, training)
    return _function(library, rest)


def _torchvision(name: str, training: Training) -> Maker:
    torchvision = _library("torchvision")
    if name not in torchvision.models.list_models():
        raise ValueError(
            f"torchvision has no model {name!r}: torchvision.models.list_models() names them"
        )

    def make(batch: int = 1) -> Step:
        model = torchvision.models.get_model(name, weights=None, **_no_backbone(name))
        images = torch.randn(
            batch, 3, training.size, training.size, dtype=getattr(torch, training.dtype)
        )
        labels = torch.randint(0, 2, (batch,))

        def loss() -> torch.Tensor:
            made = model(images)
            made = getattr(made, "logits", made)
            made = made["out"] if isinstance(made, dict) and "out" in made else made
            if not isinstance(made, torch.Tensor):
                raise ValueError(
                    f"torchvision's {name} gives no scores to take a loss of: write a function that "
                    "builds its step, and name it as module:function"
                )
            target = (
                labels if made.dim() == 2 else labels[:, None, None].expand(-1, *made.shape[2:])
            )
            return torch.nn.functional.cross_entropy(made.float(), target)

        return _step(model, loss, training)

    return make


def _no_backbone(name: str) -> dict[str, Any]:
    # Models for segmentation download the weights of what they are built on, unless told not to.
    built_on = ("fcn_", "deeplabv3_", "lraspp_")
    return {"weights_backbone": None} if name.startswith(built_on) else {}


def _transformers(name: str, training: Training) -> Maker:
    transformers = _library("transformers")
    kinds = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    given: dict[str, Any] = {}
    known = name if name in kinds else name.removesuffix("Config").lower()
    if known not in kinds:  # a folder of a type's name has to be ./bert
        if not os.path.exists(name):
            raise ValueError(
                f"transformers has no model {name!r}: a model's type is wanted, such as bert or "
                "llama, or the path of a config.json"
            )
        known, given = _read_config(name)
        if known not in kinds:
            raise ValueError(
                f"transformers has no model of the type {known!r}, which {name} asks for"
            )
    _check_config(kinds[known], training.config)

    def make(batch: int = 1) -> Step:
        config = kinds[known].from_dict({**given, **training.config})
        config.use_cache = False  # of no use in training
        if config.is_encoder_decoder and getattr(config, "decoder_start_token_id", None) is None:
            config.decoder_start_token_id = 0
        model = _class_for(transformers, config).from_config(config)
        inputs = _inputs(config, model, batch, training)
        return _step(model, lambda: model(**inputs).loss, training)

    return make


def _read_config(path: str) -> tuple[str, dict[str, Any]]:
    """A model's type and the rest of its config.json, as Hugging Face's models have one."""
    file = os.path.join(path, "config.json") if os.path.isdir(path) else path
    try:
        with open(file, encoding="utf-8") as text:
            found = json.load(text)
    except OSError as error:
        raise ValueError(f"{file} can't be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{file} is no configuration in JSON: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("model_type"), str):
        raise ValueError(f"{file} is no model's configuration: it has no model_type")
    return found.pop("model_type"), found


def _check_config(kind: Any, config: dict[str, Any]) -> None:
    # A configuration takes any key, and most models look at none that they don't know.
    if not config:
        return
    allowed = {key for key in kind().to_dict() if not key.startswith("_")} | set(kind.attribute_map)
    for key in config:
        if key not in allowed:
            raise ValueError(
                f"--config: {kind.model_type} has no {key!r}; there are "
                f"{', '.join(sorted(allowed))}"
            )


def _class_for(transformers: Any, config: Any) -> Any:
    auto = transformers.models.auto.modeling_auto
    choices = [
        ("AutoModelForMaskedLM", auto.MODEL_FOR_MASKED_LM_MAPPING),
        ("AutoModelForCausalLM", auto.MODEL_FOR_CAUSAL_LM_MAPPING),
        ("AutoModelForImageClassification", auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING),
    ]
    if getattr(config, "is_encoder_decoder", False):
        choices.insert(0, ("AutoModelForSeq2SeqLM", auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING))
    for name, mapping in choices:
        if type(config) in mapping:
            return getattr(transformers, name)
    raise ValueError(
        f"transformers' {config.model_type} is neither a language model nor a classifier of "
        "images: write a function that builds its step, and name it as module:function"
    )


def _inputs(config: Any, model: Any, batch: int, training: Training) -> dict[str, torch.Tensor]:
    if model.main_input_name == "pixel_values":
        size = config.image_size
        pixels = torch.randn(batch, 3, size, size, dtype=getattr(torch, training.dtype))
        return {"pixel_values": pixels, "labels": torch.randint(0, 2, (batch,))}
    text = torch.randint(0, config.vocab_size, (batch, training.tokens))
    return {"input_ids": text, "labels": text}


def _function(module: str, function: str) -> Maker:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ValueError(f"there is no module {error.name!r}") from None
    maker = getattr(found, function, None)
    if not callable(maker):
        raise ValueError(f"the module {module} has no function {function!r}")
    return maker


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ValueError(f"{name} can't be imported: {error}") from None


def _step(model: torch.nn.Module, loss_of: Step, training: Training) -> Step:
    model.to(getattr(torch, training.dtype))
    if training.lora:
        _add_adapters(model, training.lora)
    model.train()
    if training.checkpoint:
        # Fake tensors have no state of a generator to preserve.
        how = {"use_reentrant": False, "preserve_rng_state": False}
        # transformers' own, which was called otherwise before its version 5.
        for name in ("activation_checkpointing_enable", "gradient_checkpointing_enable"):
            if hasattr(model, name):
                getattr(model, name)(how)
                break
        else:
            if checkpoint_blocks(model, **how) == 0:
                raise ValueError(
                    f"{type(model).__name__} has no blocks to checkpoint: none of its modules is a "
                    "list of others that have modules of their own"
                )
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = OPTIMIZERS[training.optimizer](trained, lr=1e-3, foreach=training.foreach)

    def step() -> None:
        optimizer.zero_grad()
        loss_of().backward()
        optimizer.step()

    return step


def _add_adapters(model: torch.nn.Module, rank: int) -> None:
    # In place; where peft has no layers by the model's type, in all linear ones but the last.
    peft = _library("peft")
    known = peft.utils.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
    layers = known.get(model.config.model_type, "all-linear")
    peft.get_peft_model(model, peft.LoraConfig(r=rank, target_modules=layers))


def checkpoint_blocks(model: torch.nn.Module, **how: Any) -> int:
    """Puts torch.utils.checkpoint, with these options, round each block; how many there are.

    Blocks are the modules in a ModuleList, and those in a Sequential that have modules of their
    own; not those within another block.
    """
    from torch.utils.checkpoint import checkpoint

    def wrap(block: torch.nn.Module) -> None:
        forward = block.forward

        def again(*args: Any, **kwargs: Any) -> Any:
            return checkpoint(forward, *args, **how, **kwargs)

        block.forward = again

    count = 0
    within = [model]
    while within:
        part = within.pop(0)
        if isinstance(part, (torch.nn.ModuleList, torch.nn.Sequential)):
            listed = isinstance(part, torch.nn.ModuleList)
            blocks = [c for c in part.children() if listed or list(c.children())]
            plain = [b for b in blocks if not isinstance(b, torch.nn.Sequential)]
            for block in plain:
                wrap(block)
            count += len(plain)
            within += [b for b in blocks if isinstance(b, torch.nn.Sequential)]
        else:
            within += list(part.children())
    return count
