"""Run the command line in the test process, without importing TensorFlow again."""

import pytest
from typer.testing import CliRunner, Result

from deepsimplex import cli


@pytest.fixture(scope="session")
def command():
    """Call the command line with some arguments: its result has ``stdout`` and ``stderr``."""

    def call(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(cli.application, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    return call
