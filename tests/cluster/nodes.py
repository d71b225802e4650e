"""A Ray cluster of two nodes on this machine, in a process of its own.

Prints the address of its head, and that of the server of Ray's client, or an empty line where its
packages are not installed. Then does what it is told, a line at a time: ``replace`` kills the
second node and adds another. It ends with its input.
"""

from __future__ import annotations

import socket
import sys
from importlib.util import find_spec

from ray.cluster_utils import Cluster

NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "memory": 2 << 30}


def free_port() -> int:
    """Find a port at which nothing listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def main() -> None:
    """Run the cluster."""
    port = free_port() if find_spec("grpc") else None
    head = {"include_dashboard": False, "ray_client_server_port": port, **NODE}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    second = cluster.add_node(**NODE)
    client = f"ray://127.0.0.1:{port}" if port else ""
    print(f"{cluster.address}\n{client}", flush=True)  # noqa: T201
    for _ in sys.stdin:
        cluster.remove_node(second, allow_graceful=False)
        second = cluster.add_node(**NODE)
        print("replaced", flush=True)  # noqa: T201
    cluster.shutdown()


if __name__ == "__main__":
    main()
