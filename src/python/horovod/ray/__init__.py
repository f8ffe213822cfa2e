"""horovod.ray is not there: says so, and what to do instead."""

raise ImportError(
    "horovod.ray is not there in hvdrun: call hvd.run(train, np=...) in a Ray task that holds the slots of one host, or give "
    "hvdrun the hosts of Ray's nodes (--hosts, or --manifest)",
    name=__name__,
)
