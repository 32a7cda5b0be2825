"""Jobs on a local Ray cluster: the same bytes as from one process, whatever dies meanwhile."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from commands import failed, run
from conftest import invented_pairs

pytest.importorskip("ray", reason="needs the extra ray")

# Ray reads these when it is imported, in this process and in those of the cluster.
os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
