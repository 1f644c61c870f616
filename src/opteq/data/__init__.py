"""Images and labels: readers, splits, batches, augmentation."""

from opteq.data.catalogue import list_data, load_data

__all__ = ["list_data", "load_data"]
