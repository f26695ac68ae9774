"""The public names: all there, and loaded only when they are used."""

import subprocess
import sys

import pytest

import barco
from barco import client


def test_every_public_name_is_there():
    assert set(barco.__all__) == {*client.__all__, "__version__"}
    for name in barco.__all__:
        assert getattr(barco, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Broker'"):
        _ = barco.Broker


def test_workers_do_not_pay_for_the_client():
    program = (
        "import sys, barco; assert 'barco.client' not in sys.modules;"
        "assert 'asyncio' not in sys.modules; barco.Producer;"
        "assert 'barco.client.producer' in sys.modules"
    )
    subprocess.run([sys.executable, "-P", "-c", program], check=True, timeout=60)
    program = (
        "import sys, barco.cli.commands.serve, barco.workers.worker;"
        "assert 'barco.client.producer' not in sys.modules"
    )
    subprocess.run([sys.executable, "-P", "-c", program], check=True, timeout=60)
