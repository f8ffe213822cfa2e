"""The names, other than operations, that every framework's package offers: queries, ops, process sets, stop, report,
the error.

A package re-exports them with a star and lists only its own names:

    from hvd._runtime.common_names import *
    from hvd._runtime.common_names import _names as _shared
    __all__ = [*_shared, *_operations, ...]

The list is not called __all__. Type checkers do not read concatenated lists, and would see only a part of it.
"""

from hvd._job.report import report as report
from hvd._job.should_stop import should_stop as should_stop
from hvd._native import Adasum as Adasum
from hvd._native import Average as Average
from hvd._native import Max as Max
from hvd._native import Min as Min
from hvd._native import Product as Product
from hvd._native import Sum as Sum
from hvd._runtime.world import *  # noqa: F403 -- the queries that it lists
from hvd._runtime.world import __all__ as _queries
from hvd.exceptions import HorovodInternalError as HorovodInternalError
from hvd.process_sets import ProcessSet as ProcessSet
from hvd.process_sets import add_process_set as add_process_set
from hvd.process_sets import global_process_set as global_process_set
from hvd.process_sets import program_sets as program_sets
from hvd.process_sets import remove_process_set as remove_process_set

_names = [
    *_queries,
    "Adasum",
    "Average",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "global_process_set",
    "program_sets",
    "remove_process_set",
    "report",
    "should_stop",
]
