"""Clusters, whose workers read the data and compute the rows of pipelines."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from . import _forebay
from .ray_cluster import RayCluster

if TYPE_CHECKING:
    from .settings import ClusterAccess

__all__ = ["Cluster", "on"]


@dataclass(frozen=True)
class Cluster:
    """A cluster of Forebay's own, by the address of its scheduler and the access to it.

        cluster = fb.Cluster("node1:7100", tls_ca="ca.pem", tls_cert="me.pem", tls_key="me.key")
        loader = DataLoader(train.cluster(cluster).torch(), batch_size=None)

    An access setting that is None is that of its environment variable. A `Cluster` is only a description, so it can be pickled
    (with its token), and creating one connects to nothing. All pipelines of a process share its connections, and each
    forked or spawned process connects by itself.
    """

    #: Host and port of the scheduler.
    address: str
    #: Secret that all processes of the cluster share (`FOREBAY_CLUSTER_TOKEN`).
    token: str | None = field(default=None, repr=False)
    #: PEM files: the certificate of this process (`FOREBAY_TLS_CERT`), its key (`FOREBAY_TLS_KEY`), and the authorities
    #: that sign the certificates of the cluster (`FOREBAY_TLS_CA`).
    tls_cert: str | os.PathLike[str] | None = None
    tls_key: str | os.PathLike[str] | None = None
    tls_ca: str | os.PathLike[str] | None = None
    #: True to allow connections to other machines that are not encrypted (`FOREBAY_CLUSTER_INSECURE=1`).
    insecure: bool = False
    #: Compression of rows on their way from the workers, for networks that are slower than the workers.
    compression: Literal["none", "lz4", "zstd"] = "none"

    def status(self) -> dict[str, Any]:
        """The clients, jobs and workers of the cluster: the object that `forebay status --json` prints."""
        status: dict[str, Any] = json.loads(self._engine().status())
        return status

    def __str__(self) -> str:
        return self.address

    def _engine(self) -> _forebay.Cluster:
        """Returns this process's client of the cluster. Its connections are made when it is first used."""
        key = (os.getpid(), self)
        if key not in _ENGINES:
            _ENGINES[key] = _forebay.Cluster(**{part.name: getattr(self, part.name) for part in fields(self)})
        return _ENGINES[key]


#: The clients of this process and, if it was forked, those of its parent, which are never used or freed here.
_ENGINES: dict[tuple[int, Cluster], _forebay.Cluster] = {}


def on(cluster: str | Cluster | RayCluster | None, access: ClusterAccess) -> Cluster | RayCluster | None:
    """Returns the cluster that the arguments of `Pipeline.cluster` describe."""
    if isinstance(cluster, str):
        return Cluster(cluster, **access)
    if cluster is not None and not isinstance(cluster, (Cluster, RayCluster)):
        wanted = 'an address such as "node1:7100", a forebay.Cluster, or forebay.ray(..)'
        raise TypeError(f"cluster must be {wanted}, found {cluster!r}")
    if access:
        raise TypeError(f"{', '.join(access)}: give the access to a cluster with its address, or to forebay.Cluster(..)")
    return cluster
