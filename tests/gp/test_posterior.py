"""The posterior as a TensorFlow graph: any number of rows, computed in blocks."""

import numpy as np
import pytest
import tensorflow as tf

from deepsimplex.gp.gpflow_kernels import gpflow
from deepsimplex.gp.posterior import Posterior
from deepsimplex.gp.scaling import Scaling

RNG = np.random.default_rng(0)
M, L, D = 8, 3, 2
MOST = 5


class Watched(gpflow.kernels.SquaredExponential):
    """Refuses more rows at a time than the budget holds."""

    def __call__(self, X, X2=None, **options):
        rows = tf.shape(X if X2 is None else X2)[0]
        with tf.control_dependencies([tf.debugging.assert_less_equal(rows, MOST)]):
            return tf.identity(super().__call__(X, X2, **options))


@pytest.fixture(params=["shared", "separate"])
def posterior(request, monkeypatch):
    factors = 1 if request.param == "shared" else L
    monkeypatch.setattr("deepsimplex.gp.posterior._BUDGET", MOST * factors * M)
    support, weights = RNG.normal(size=(M, D)), RNG.normal(size=(M, L))
    triangles = np.tril(RNG.normal(size=(factors, M, M))) / M
    features, latents = Scaling(np.ones(D), np.full(D, 2.0)), Scaling(np.arange(1.0, L + 1), np.full(L, 3.0))
    return Posterior(Watched(lengthscales=2.0), support, weights, triangles, features, latents)


@pytest.mark.slow
@pytest.mark.parametrize("jit", [False, True], ids=["graph", "XLA"])
def test_graph_of_any_number_of_rows_keeps_the_memory_budget(jit, posterior):
    served = tf.function(posterior, input_signature=[tf.TensorSpec([None, D])], autograph=False, jit_compile=jit)
    for rows in (0, 4 * MOST + 2) if jit else (0, 1, MOST, MOST + 1, 4 * MOST + 2):  # XLA compiles for each
        X = RNG.normal(size=(rows, D)).astype("float32")
        expected, outputs = posterior.predict(X), served(tf.constant(X))
        np.testing.assert_allclose(outputs["loc"], expected.loc, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(outputs["scale"], expected.scale, rtol=1e-9)
        assert outputs["loc"].shape == (rows, L)


def test_graph_of_fixed_number_of_rows_keeps_the_memory_budget(posterior):
    X = RNG.normal(size=(3 * MOST + 1, D))
    served = tf.function(lambda: posterior(X), autograph=False)
    np.testing.assert_allclose(served()["loc"], posterior.predict(X).loc, rtol=1e-9)
