"""horovod.common.process_sets: hvd.process_sets."""

from hvd.process_sets import ProcessSet as ProcessSet
from hvd.process_sets import add_process_set as add_process_set
from hvd.process_sets import global_process_set as global_process_set
from hvd.process_sets import remove_process_set as remove_process_set

__all__ = ["ProcessSet", "add_process_set", "global_process_set", "remove_process_set"]
