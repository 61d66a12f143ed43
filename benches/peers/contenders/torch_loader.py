"""The parts that torchvision and PIL share: data sets of photos, and the DataLoader over them.

With one thread the loader works in its own process. With more it has as many worker processes.
"""

import glob

import pyarrow.parquet
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info


class Folder(Dataset):
    """The photos of a folder, by their sorted paths."""

    def __init__(self, folder, load):
        self.paths, self.load = sorted(glob.glob(f"{folder}/*")), load

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return self.load(self.paths[index])


class Parquet(IterableDataset):
    """The photos of a Parquet file; the workers take its row groups in turns."""

    def __init__(self, path, load):
        self.path, self.load = path, load

    def __iter__(self):
        file, worker = pyarrow.parquet.ParquetFile(self.path), get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for group in range(first, file.num_row_groups, step):
            for encoded in file.read_row_group(group, columns=["image"], use_threads=False)["image"]:
                yield self.load(encoded.as_py())


def loader(dataset, batch, threads, is_stacked):
    """Returns a callable that yields the batches of one epoch: stacked tensors, or lists if shapes vary."""
    torch.set_num_threads(1)
    workers = threads if threads > 1 else 0
    data = DataLoader(dataset, batch_size=batch, num_workers=workers, persistent_workers=workers > 0,
                      collate_fn=None if is_stacked else list)
    return lambda: data
