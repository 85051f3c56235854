"""All fixtures are in tests/harness, which tests/e2e and tests/fault share."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from harness.fixtures import *  # noqa: E402,F401,F403
from harness.fixtures import _unexpected_lines  # noqa: E402,F401
