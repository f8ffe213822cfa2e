"""A Ray driver that runs checks.py's checks (support/check_server.py): driver.py [ADDRESS].

Without an address it also makes the cluster: two nodes of two CPUs on this machine.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from support import check_server

sys.path[0] = os.path.dirname(os.path.abspath(__file__))  # ranks get this path: the suites' folders have other packages' names


def main() -> None:
    """See the file's comment."""
    import checks
    import ray
    from ray.cluster_utils import Cluster

    cluster = None
    if len(sys.argv) == 1:
        cluster = Cluster(initialize_head=True, head_node_args=checks.NODE)
        checks.NODES.append(cluster.add_node(**checks.NODE))
    ray.init(address=cluster.address if cluster else sys.argv[1], logging_level="error", log_to_driver=False)
    check_server.serve(checks, cluster)
    ray.shutdown()
    if cluster is not None:
        cluster.shutdown()


if __name__ == "__main__":
    main()
