"""The benchmark of the readouts runs at a small size; it needs casimac, an optional dependency."""

import pytest

from deepsimplex.latent import LatentGaussian


@pytest.mark.peers
def test_benchmark_prints_every_figure(monkeypatch, capsys):
    pytest.importorskip("casimac")
    from training.benchmarks import readouts

    sizes = {"ROWS": 60, "PEER_ROWS": 20, "PEER_DRAWS": 50, "STEPS": 2, "CLASSES": (3, 5), "FEW_CLASSES": 4}
    for name, value in {**sizes, "REFERENCE_POINTS": 2**7}.items():
        monkeypatch.setattr(readouts, name, value)
    readouts.main(repeats=1)
    printed = capsys.readouterr().out
    for column in ("largest error", "relative", "Sobol points", "speed over casimac", "memory", "training step"):
        assert column in printed


@pytest.mark.peers
def test_casimac_agrees():
    pytest.importorskip("casimac")
    from training.benchmarks import readouts

    latent = readouts.latents(readouts.PEER_ROWS, 5, "diagonal")
    from deepsimplex.readout import argmax, monte_carlo_standard_error

    assert isinstance(latent, LatentGaussian)
    expected = argmax(latent, num_points=2**11)
    error = monte_carlo_standard_error(expected, readouts.PEER_DRAWS)
    deviations = (readouts.peer(latent, 5)() - expected) / error
    assert 0.8 < deviations[expected > 0.01].std() < 1.2
