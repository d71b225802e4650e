"""A Ray cluster of two nodes on this machine, in a process of its own.

Prints the address of its head, then does what it is told, a line at a time: ``replace`` kills the
second node and adds another. It ends with its input.
"""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster

NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "memory": 2 << 30}


def main() -> None:
    """Run the cluster."""
    cluster = Cluster(initialize_head=True, head_node_args={"include_dashboard": False, **NODE})
    second = cluster.add_node(**NODE)
    print(cluster.address, flush=True)  # noqa: T201
    for _ in sys.stdin:
        cluster.remove_node(second, allow_graceful=False)
        second = cluster.add_node(**NODE)
        print("replaced", flush=True)  # noqa: T201
    cluster.shutdown()


if __name__ == "__main__":
    main()
