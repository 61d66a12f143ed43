"""A training program of two ranks, for PyTorch's DDP, Accelerate or Lightning.

    python ranks.py LIBRARY TABLE FOLDER RANK

The ranks connect through a file in FOLDER. Each rank writes to FOLDER, for each step, the ids of the rows in its batch,
the mask of padding rows, and the loss.
"""

import faulthandler
import json
import multiprocessing.util
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import forebay as fb

WORLD = 2


def rows(table):
    return fb.read_parquet(table).select("id", x="CAST(x AS FLOAT)").shuffle("global", seed=3).batch(4)


def loss_of(model, batch):
    """Returns the mean loss over the rows that are not padding; 0 if all rows are padding."""
    target = batch["x"].reshape(-1, 1) * 2
    weights = torch.ones(len(target)) if "padded" not in batch else (~batch["padded"]).float()
    errors = (model(batch["x"].reshape(-1, 1)) - target) ** 2
    return (errors.squeeze(1) * weights).sum() / weights.sum().clamp(min=1)


def told(batch, loss):
    padded = batch["padded"] if "padded" in batch else torch.zeros(len(batch["id"]), dtype=torch.bool)
    return {"ids": batch["id"].tolist(), "padded": padded.tolist(), "loss": loss.item()}


def network():
    torch.manual_seed(1)
    return torch.nn.Linear(1, 1)


def ddp(table, _):
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader

    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    steps = []
    for batch in DataLoader(rows(table).torch(), batch_size=None):
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps.append(told(batch, loss))
    return steps, model.module


def accelerate_own(table, _):
    """Each process has its own batches, since the loader is not prepared by Accelerate."""
    from accelerate import Accelerator
    from torch.utils.data import DataLoader

    accelerator = Accelerator(cpu=True)
    model = network()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1e-3))
    steps, seen = [], []
    for batch in DataLoader(rows(table).torch(), batch_size=None):
        loss = loss_of(model, batch)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        steps.append(told(batch, loss))
        # All ranks have the same number of rows, as `gather` requires.
        ids, padded = accelerator.gather((batch["id"], batch["padded"]))
        seen += ids[~padded].tolist()
    assert len(seen) == len(set(seen))
    return steps, accelerator.unwrap_model(model)


def accelerate_split(table, _):
    """Accelerate reads the stream of a single rank and splits it between the processes."""
    from accelerate import Accelerator
    from torch.utils.data import DataLoader

    accelerator = Accelerator(cpu=True)
    model = network()
    loader = DataLoader(rows(table).torch(rank=0, world=1), batch_size=None)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1e-3), loader)
    steps = []
    for batch in loader:
        loss = loss_of(model, batch)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        steps.append(told(batch, loss))
    return steps, accelerator.unwrap_model(model)


def accelerate_twice(table, rank):
    """Forebay and Accelerate both split the stream, which must raise an error, with loader workers or without."""
    from accelerate import Accelerator
    from torch.utils.data import DataLoader

    accelerator = Accelerator(cpu=True)
    raised = []
    for workers in (0, 1):
        loader = accelerator.prepare(DataLoader(rows(table).torch(), batch_size=None, num_workers=workers))
        if rank == 0:
            try:
                next(iter(loader))
            except fb.ConfigError as error:
                raised.append(str(error))
    return raised, network()


def accelerate_states(table, _):
    """Requests the dataset's state at every step of a loop, while Accelerate reads ahead of the loop."""
    from accelerate import Accelerator
    from torch.utils.data import DataLoader

    dataset = rows(table).torch(rank=0, world=1)
    loader = Accelerator(cpu=True).prepare(DataLoader(dataset, batch_size=None))
    said = []
    for _ in loader:
        try:
            said.append(dataset.state()["first_epoch"])
        except (fb.ConfigError, ValueError) as error:
            said.append(f"{type(error).__name__}: {error}")
    return said, network()


def accelerate_resumed(table, _):
    """Resumes from a state in the second epoch. Accelerate starts with epoch 0 unless `set_epoch` is called."""
    from accelerate import Accelerator
    from torch.utils.data import DataLoader

    run = rows(table).run(first_epoch=1)
    next(run)
    dataset = rows(table).torch(rank=0, world=1, resume=run.state_dict())
    loader = Accelerator(cpu=True).prepare(DataLoader(dataset, batch_size=None))
    steps = []
    try:
        next(iter(loader))
    except fb.ConfigError as error:
        steps.append(str(error))
    loader.set_epoch(1)
    steps += [batch["id"].tolist() for batch in loader]
    return steps, network()


def lightning(table, _):
    import lightning
    from torch.utils.data import DataLoader

    steps = []

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = network()

        def training_step(self, batch, _):
            loss = loss_of(self.model, batch)
            steps.append(told(batch, loss))
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=WORLD,
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Model()
    trainer.fit(module, DataLoader(rows(table).torch(), batch_size=None))
    return steps, module.model


def main():
    # An abort says where.
    faulthandler.enable()
    library, table, folder, rank = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), NODE_RANK="0", WORLD_SIZE=str(WORLD))
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    steps, model = globals()[library](table, rank)
    weights = [value.item() for value in model.parameters()]
    (folder / f"rank{rank}.json").write_text(json.dumps({"steps": steps, "weights": weights}))
    # No rank exits before all ranks have finished.
    dist.barrier()
    dist.destroy_process_group()
    # Gloo's threads outlive the process group once DDP has used it, and an end of the interpreter beside them has been
    # seen to abort the process, so the interpreter is not ended. (`test_process.py` ends processes that use Forebay.)
    sys.stdout.flush()
    # Loader workers end.
    multiprocessing.util._exit_function()
    os._exit(0)


main()
