"""Recipes of training libraries, small, with and without a run: the same weights and checkpoints.

They run where the libraries are installed: transformers, trl, accelerate, pytorch_lightning, timm,
diffusers, torchvision. Each is run without delta_torch, then within a share of its peak.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import delta_torch
from bits import bits_of, difference

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]

WAYS = [("adaptive", "1GiB", 0.7), ("online", "1GiB", 0.6), ("dtr", 0, 0.9)]
SEED = 5

Recipe = Callable[[Path], Any]


def net() -> nn.Sequential:
    layers = [nn.Linear(32, 64), nn.BatchNorm1d(64), nn.GELU(), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 4))


def batches(count: int = 6) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.randn(64, 32), torch.randint(0, 4, (64,))) for _ in range(count)]


def saved(folder: Path) -> list[Any]:
    """All tensors of the checkpoints in a folder, in the order of their files."""
    found: list[Any] = []
    for file in sorted(folder.rglob("*")):
        if file.suffix in (".pt", ".ckpt", ".bin", ".pth") and "args" not in file.name:
            content = torch.load(file, weights_only=False)
            found.extend(
                t for t in torch.utils._pytree.tree_leaves(content) if isinstance(t, torch.Tensor)
            )
        elif file.suffix == ".safetensors":
            found.extend(pytest.importorskip("safetensors.torch").load_file(file).values())
    return found


def small_gpt(transformers: Any, **options: Any) -> nn.Module:
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 64, "n_positions": 32}
    words = {"bos_token_id": 0, "eos_token_id": 0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes | words | options))


def small_tokenizer(transformers: Any) -> Any:
    """Of 64 words, w0 to w61."""
    import tokenizers

    words = ["<pad>", "<eos>", *(f"w{i}" for i in range(62))]
    whole_words = tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, "<pad>")
    tokenizer = tokenizers.Tokenizer(whole_words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>"
    )


def trainer(folder: Path, callbacks: Sequence[Any] = ()) -> Any:
    """transformers' Trainer, with evaluation and checkpoints; then one that resumes."""
    transformers = pytest.importorskip("transformers")
    data = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (64, 24))]
    given: list[Any] = []
    for resume in (None, str(folder / "checkpoint-2")):
        arguments = transformers.TrainingArguments(
            output_dir=str(folder),
            max_steps=4,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            eval_strategy="steps",
            eval_steps=2,
            save_steps=2,
            logging_steps=1,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            seed=SEED,
        )
        model = small_gpt(transformers)
        trained = transformers.Trainer(
            model,
            arguments,
            train_dataset=data,
            eval_dataset=data[:8],
            callbacks=list(callbacks),
        )
        trained.train(resume_from_checkpoint=resume)
        losses = [
            entry[key]
            for entry in trained.state.log_history
            for key in ("loss", "eval_loss", "grad_norm")
            if key in entry
        ]
        given += [losses, list(trained.model.state_dict().values())]
    return given, saved(folder)


def sft_trainer(folder: Path, run: delta_torch.Run | None = None) -> Any:
    """TRL's SFTTrainer on texts, with a tokenizer of 64 words, and a checkpoint.

    run: is put around each step, where TRL has a place for it.
    """
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    transformers = pytest.importorskip("transformers")
    texts = [" ".join(f"w{i}" for i in row) for row in torch.randint(0, 62, (32, 20)).tolist()]
    trained = trl.SFTTrainer(
        # Large, as TRL's losses take 400 KiB a word, however small the model is.
        small_gpt(transformers, n_layer=8, n_embd=256),
        trl.SFTConfig(
            output_dir=str(folder),
            max_steps=4,
            per_device_train_batch_size=4,
            max_length=24,
            save_steps=2,
            logging_steps=1,
            use_cpu=True,
            bf16=False,
            report_to=[],
            disable_tqdm=True,
            seed=SEED,
        ),
        train_dataset=datasets.Dataset.from_dict({"text": texts}),
        processing_class=small_tokenizer(transformers),
    )
    if run is not None:
        trained.maybe_activation_offload_context = run.each_step()
    trained.train()
    losses = [entry["loss"] for entry in trained.state.log_history if "loss" in entry]
    return losses, list(trained.model.state_dict().values()), saved(folder)


def accelerated(folder: Path, around: Any = None, trackers: Sequence[Any] = ()) -> Any:
    """accelerate's loop, with accumulated gradients, clipping, and its own checkpoint.

    around: makes a context manager of the accelerator, for the loop.
    """
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(
        cpu=True, gradient_accumulation_steps=2, log_with=list(trackers) or None
    )
    accelerator.init_trackers("recipe")
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    loader = torch.utils.data.DataLoader(batches(4), batch_size=None)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    with contextlib.nullcontext() if around is None else around(accelerator):
        for epoch in range(3):
            for x, y in loader:
                with accelerator.accumulate(model):
                    loss = nn.functional.cross_entropy(model(x), y)
                    accelerator.backward(loss)
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
                    losses.append(loss.item())
                    accelerator.log({"loss": losses[-1]})
            if epoch == 0:
                accelerator.save_state(str(folder / "state"))
    accelerator.load_state(str(folder / "state"))
    return losses, list(model.state_dict().values()), saved(folder)


def _lightning_trainer(
    folder: Path,
    epochs: int = 2,
    accumulated: int = 1,
    callbacks: Sequence[Any] = (),
    logger: Any = False,
) -> Any:
    lightning = pytest.importorskip("pytorch_lightning")
    return lightning.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        accumulate_grad_batches=accumulated,
        default_root_dir=str(folder),
        callbacks=list(callbacks),
        logger=logger,
        log_every_n_steps=2,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def lightning_automatic(folder: Path, **options: Any) -> Any:
    """Lightning's own loop, with accumulated gradients, validation, a scheduler and a checkpoint;
    then one that resumes.
    """
    lightning = pytest.importorskip("pytorch_lightning")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.losses = net(), []

        def training_step(self, batch: Any, _index: int) -> torch.Tensor:
            loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.losses.append(loss.item())
            return loss

        def validation_step(self, batch: Any, _index: int) -> None:
            self.losses.append(nn.functional.cross_entropy(self.net(batch[0]), batch[1]).item())

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    loaders = [torch.utils.data.DataLoader(batches(n), batch_size=None) for n in (4, 2)]
    given: list[Any] = []
    for epochs in (2, 3):
        module, resumed = Module(), next(folder.rglob("*.ckpt"), None)
        trained = _lightning_trainer(folder / str(epochs), epochs, accumulated=2, **options)
        trained.fit(module, *loaders, ckpt_path=resumed)
        given += [module.losses, list(module.state_dict().values())]
    return given, saved(folder)


def lightning_manual_gan(folder: Path, **options: Any) -> Any:
    """Two optimizers, stepped by hand in each batch."""
    lightning = pytest.importorskip("pytorch_lightning")

    class Gan(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.generator = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 32))
            self.judge = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 1))
            self.losses = []

        def training_step(self, batch: Any, _index: int) -> None:
            makes, judges = self.optimizers()
            fake = self.generator(torch.randn(len(batch[0]), 8))
            loss = nn.functional.softplus(-self.judge(fake)).mean()
            makes.zero_grad()
            self.manual_backward(loss)
            makes.step()
            right = nn.functional.softplus(-self.judge(batch[0])).mean()
            wrong = nn.functional.softplus(self.judge(fake.detach())).mean()
            judges.zero_grad()
            self.manual_backward(right + wrong)
            judges.step()
            self.losses += [loss.item(), right.item(), wrong.item()]

        def configure_optimizers(self) -> Any:
            return [torch.optim.Adam(m.parameters()) for m in (self.generator, self.judge)]

    module = Gan()
    loader = torch.utils.data.DataLoader(batches(4), batch_size=None)
    _lightning_trainer(folder, **options).fit(module, loader)
    return module.losses, list(module.state_dict().values()), saved(folder)


def timm_with_ema(_folder: Path) -> Any:
    """timm's optimizer, mixup and moving average of the weights."""
    timm = pytest.importorskip("timm")
    import timm.data
    import timm.loss
    import timm.optim
    import timm.utils

    model = timm.create_model("test_vit", num_classes=4, img_size=32, drop_path_rate=0.1)
    average = timm.utils.ModelEmaV3(model, decay=0.9)
    optimizer = timm.optim.create_optimizer_v2(model, "adamw", lr=1e-3)
    mixup = timm.data.Mixup(mixup_alpha=0.4, num_classes=4)
    losses = []
    for _ in range(4):
        x, y = mixup(torch.randn(8, 3, 32, 32), torch.randint(0, 4, (8,)))
        loss = timm.loss.SoftTargetCrossEntropy()(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(model)
        losses.append(loss.item())
    return losses, list(model.state_dict().values()), list(average.module.state_dict().values())


def diffusion(_folder: Path) -> Any:
    """A step of diffusers' UNet on noised images, and an average of its weights."""
    diffusers = pytest.importorskip("diffusers")
    from diffusers.training_utils import EMAModel

    model = diffusers.UNet2DModel(
        sample_size=16,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
    )
    average = EMAModel(model.parameters(), decay=0.9)
    scheduler = diffusers.DDPMScheduler(num_train_timesteps=50)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(4):
        images, noise = torch.randn(8, 3, 16, 16), torch.randn(8, 3, 16, 16)
        times = torch.randint(0, 50, (8,))
        given = model(scheduler.add_noise(images, noise, times), times).sample
        loss = nn.functional.mse_loss(given, noise)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        average.step(model.parameters())
        losses.append(loss.item())
    return losses, list(model.state_dict().values()), average.shadow_params


def detection(_folder: Path) -> Any:
    """torchvision's Faster R-CNN: sizes that depend on the data, NMS, then boxes in eval mode."""
    torchvision = pytest.importorskip("torchvision")
    from torchvision.models.detection import FasterRCNN
    from torchvision.models.detection.rpn import AnchorGenerator

    body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1))
    body.out_channels = 16
    model = FasterRCNN(
        body,
        num_classes=3,
        rpn_anchor_generator=AnchorGenerator(((16, 32),), ((0.5, 1.0),)),
        box_roi_pool=torchvision.ops.MultiScaleRoIAlign(["0"], 5, 2),
        min_size=64,
        max_size=96,
        box_detections_per_img=10,
    )
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    images = [torch.rand(3, 64, 80), torch.rand(3, 60, 64)]
    targets = [
        {"boxes": torch.tensor(boxes), "labels": torch.tensor(labels)}
        for boxes, labels in (
            ([[4.0, 4, 30, 40], [10, 8, 50, 44]], [1, 2]),
            ([[8.0, 2, 40, 30]], [2]),
        )
    ]
    losses = []
    for _ in range(3):
        parts = model(images, copy.deepcopy(targets))
        loss = sum(parts.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses += [part.item() for part in parts.values()]
    with torch.no_grad():
        boxes = model.eval()(images)
    return losses, boxes, list(model.state_dict().values())


RECIPES: dict[Recipe, list[tuple[str, int | str, float]]] = {
    trainer: [*WAYS[:2], ("dtr", 0, 0.97)],
    sft_trainer: WAYS[:2],
    # Weights, their averages and the optimizer's state, which only a host can take, are most of it.
    accelerated: WAYS[:2],
    lightning_automatic: WAYS[:2],  # a checkpoint that is loaded can only be copied out
    lightning_manual_gan: WAYS,
    timm_with_ema: WAYS[:2],
    diffusion: WAYS,
    detection: WAYS,
}


def seeded(recipe: Recipe, folder: Path) -> Any:
    import random

    import numpy

    folder.mkdir()
    random.seed(SEED)
    numpy.random.seed(SEED)
    torch.manual_seed(SEED)
    return recipe(folder)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda r: r.__name__)
def test_recipe(recipe: Recipe, tmp_path: Path) -> None:
    right = bits_of(seeded(recipe, tmp_path / "right"))
    assert difference(right, bits_of(seeded(recipe, tmp_path / "again"))) is None
    with delta_torch.budget(None, policy="unmanaged") as run:
        seeded(recipe, tmp_path / "peak")
    peak = run.report().peak_bytes
    for number, (policy, host, share) in enumerate(RECIPES[recipe]):
        with delta_torch.budget(int(peak * share), policy=policy, host=host) as run:
            given = seeded(recipe, tmp_path / str(number))
        assert difference(right, bits_of(given)) is None, (policy, host, share)
        report = run.report()
        assert report.offloads + report.recomputes > 0, "nothing has left"


def auto_batch_size(
    folder: Path, most: int | None = None, callbacks: Sequence[Any] = ()
) -> Any:
    """Trainer's auto_find_batch_size from 64 on; `most`: memory is short above it."""
    transformers = pytest.importorskip("transformers")
    model = small_gpt(transformers, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)

    def refuse(_module: nn.Module, _args: Any, given: dict[str, Any]) -> None:
        if most is not None and len(given["input_ids"]) > most:
            raise torch.OutOfMemoryError("delta: out of memory. In a test.")

    model.register_forward_pre_hook(refuse, with_kwargs=True)
    data = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (256, 24))]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=3,
        per_device_train_batch_size=64,
        auto_find_batch_size=True,
        optim="sgd",  # without state: what fits once fits again
        save_strategy="no",
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        seed=SEED,
    )
    trained = transformers.Trainer(
        model, arguments, train_dataset=data, callbacks=list(callbacks)
    )
    trained.train()
    return trained._train_batch_size, list(model.state_dict().values())


def test_trainer_finds_a_batch_size(tmp_path: Path) -> None:
    """Where what an operator needs does not fit: then as if that batch had been refused at once."""
    with delta_torch.budget(None, policy="unmanaged") as run:
        size, _ = seeded(auto_batch_size, tmp_path / "peak")
    assert size == 64
    with delta_torch.budget(run.report().peak_bytes // 3, policy="dtr"):
        size, given = seeded(auto_batch_size, tmp_path / "managed")
    assert 4 <= size < 64
    again, right = seeded(lambda folder: auto_batch_size(folder, size), tmp_path / "right")
    assert again == size
    assert difference(bits_of(right), bits_of(given)) is None
