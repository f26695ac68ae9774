"""Whether a pod is stopped because there shall be fewer of them."""

from barco.errors import BarcoError
from barco.kubernetes.api import Api
from barco.kubernetes.pods import pod_of


def leaving(where: str) -> str:
    """Why this pod does not come back, in words; "" if it does, or nobody says."""
    pod = pod_of(where)
    try:
        replicas = Api(pod).read().replicas
    except BarcoError:
        return ""  # It is stopped whatever is found out here.
    if pod.ordinal < replicas:
        return ""
    return (
        f"spec.replicas = {replicas} leaves broker {pod.ordinal} out, and the cluster still counts"
        " on it: what it holds has a copy less from now on. Set spec.replicas back; brokers are"
        " taken out by barco scale first"
    )
