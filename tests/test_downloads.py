"""Tests cannot download, neither in their process nor in others."""

import keras
import pytest

from tests.fresh_process import run

ADDRESS = "https://example.org/images.npz"
DOWNLOAD = f"""
import keras
try:
    keras.utils.get_file("images.npz", "{ADDRESS}")
except Exception as error:
    print(error)
"""


def test_download_fails_the_test(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    with pytest.raises(pytest.fail.Exception, match=ADDRESS):
        keras.utils.get_file("images.npz", ADDRESS, cache_dir=tmp_path)


@pytest.mark.slow
def test_download_in_subprocess_fails_the_test():
    assert "Connection refused" in run(DOWNLOAD)
