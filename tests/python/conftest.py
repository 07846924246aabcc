"""Fixtures of the tests that run the command line tool."""

import os
import subprocess

import pytest


@pytest.fixture
def cli():
    """Runs the tool with the given arguments; gives back the finished process."""
    tool = os.environ.get("CATAMOUNT_CLI")
    if not tool:
        pytest.skip("CATAMOUNT_CLI does not name the catamount tool")

    def call(*arguments):
        command = [tool, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    return call
