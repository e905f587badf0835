"""The variational Gaussian process on a backbone."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.spatial.distance import pdist
from scipy.stats import multivariate_normal

import deepsimplex as ds
from deepsimplex.losses import LatentLoss
from tests.layer_contract import assert_layer_contract
from tests.reference import variational as reference

COVARIANCES = ["isotropic", "diagonal"]
KERNELS = ["rbf", "matern32", "matern52"]
M, D = 6, 7
FEATURES = np.random.default_rng(0).normal(size=(5, D)).astype("float32")


def random_layer(num_classes=4, **options):
    """A layer of which no weight is where it began."""
    options = {"num_samples": 50, "normalize_features": False, **options}
    layer = ds.heads.VariationalGaussianProcess(num_classes, M, **options)
    layer.build((None, D))
    rng = np.random.default_rng(1)
    for weight in layer.trainable_weights:
        weight.assign(rng.normal(scale=0.5, size=weight.shape) + (weight.name == "log_lengthscale"))
    layer.adapted = True
    return layer


def factors_of(layer):
    """R [L, M, M], entry by entry."""
    raw = np.broadcast_to(np.asarray(layer.raw_factor, "float64"), (layer.latent_dim, M, M))
    return np.array([np.tril(one, -1) + np.diag(np.exp(np.diag(one))) for one in raw])


def prior_mean(layer, features):
    """w^T x + b, or zero."""
    if layer.mean_function == "zero":
        return 0.0
    return features @ np.asarray(layer.slope, "float64") + np.asarray(layer.offset, "float64")


def kernels_of(layer, features):
    """K [M, M] with its jitter, k [N, M] and the variance, by the oracle."""
    U, lengthscale = np.asarray(layer.inducing_points, "float64"), np.exp(np.asarray(layer.log_lengthscale, "float64"))
    variance = float(np.exp(np.asarray(layer.log_variance, "float64")))
    K, k = (reference.kernel_matrix(layer.kernel, X, U, lengthscale, variance) for X in (U, features))
    return K + layer.jitter * variance * np.eye(len(U)), k, variance


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_classes", "covariance", "normalize_features"),
    # Two classes have one latent, and so one covariance.
    [(2, "isotropic", True), (5, "isotropic", False), (5, "diagonal", True)],
)
def test_layer_contract(num_classes, covariance, normalize_features, tmp_path):
    options = {"covariance": covariance, "normalize_features": normalize_features}
    assert_layer_contract(lambda: random_layer(num_classes, **options), FEATURES, tmp_path)


@pytest.mark.parametrize(("ard", "mean_function"), [(False, "linear"), (True, "linear"), (False, "zero")])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_posterior_and_divergence_equal_reference(covariance, kernel, ard, mean_function):
    layer = random_layer(covariance=covariance, kernel=kernel, ard=ard, mean_function=mean_function, scale_floor=0.1)
    K, k, variance = kernels_of(layer, FEATURES)
    m, R = np.asarray(layer.mean, "float64"), factors_of(layer)
    loc, variances = reference.posterior(K, k, variance, m, R)
    if covariance == "isotropic":
        variances = variances[:, :1]
    outputs = layer(FEATURES)
    np.testing.assert_allclose(outputs["loc"], prior_mean(layer, FEATURES) + loc, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outputs["scale"], np.sqrt(variances + 0.01), rtol=1e-5)
    divergence = reference.divergence(K, m, R)
    assert float(layer.kl_divergence()) == pytest.approx(divergence, rel=1e-5)
    assert float(sum(layer.losses)) == pytest.approx(divergence / 50, rel=1e-5)


def test_divergence_equals_tensorflow_probability():
    from deepsimplex.latent import probability_distributions

    tfd = probability_distributions()
    layer = random_layer(covariance="diagonal")
    q = tfd.MultivariateNormalTriL(np.asarray(layer.mean, "float64").T, factors_of(layer))
    p = tfd.MultivariateNormalDiag(np.zeros((3, M)), np.ones((3, M)))
    assert float(layer.kl_divergence()) == pytest.approx(float(np.sum(tfd.kl_divergence(q, p))), rel=1e-5)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_new_layer_is_the_prior(covariance):
    layer = ds.heads.VariationalGaussianProcess(4, M, num_samples=50, covariance=covariance, variance=2.5)
    layer.build((None, D))
    near_and_far = np.concatenate([np.asarray(layer.inducing_points), 1e3 * FEATURES])
    outputs = layer(near_and_far)
    np.testing.assert_array_equal(outputs["loc"], 0.0)
    np.testing.assert_allclose(outputs["scale"], np.sqrt(2.5), rtol=1e-5)
    assert float(layer.kl_divergence()) == 0.0


@pytest.mark.parametrize("mean_function", ["linear", "zero"])
def test_posterior_far_from_inducing_points_is_the_prior(mean_function):
    layer = random_layer(mean_function=mean_function)
    outputs = layer(1e3 * FEATURES)
    np.testing.assert_allclose(
        outputs["loc"], prior_mean(layer, 1e3 * FEATURES) + np.zeros((5, 3)), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(outputs["scale"], np.exp(0.5 * np.asarray(layer.log_variance)), rtol=1e-5)


# Regression with noise, where everything is known in closed form.

NOISE = 0.3


class ExpectedNLL(LatentLoss):
    """E_q[-log N(z | f, NOISE^2)] of an isotropic q: the data term of Hensman's bound."""

    def call(self, observation, latent):
        squares = (observation["loc"] - latent["loc"]) ** 2 + latent["scale"] ** 2
        return keras.ops.sum(0.5 * np.log(2 * np.pi * NOISE**2) + squares / (2 * NOISE**2), axis=-1)


@pytest.fixture(scope="module")
def regression():
    """Inputs, latents of two dimensions, and a layer whose q is the exact posterior, its points being the inputs."""
    rng = np.random.default_rng(2)
    X, Z = rng.normal(size=(M, D)), rng.normal(size=(M, 2))
    layer = random_layer(3, num_samples=M, dtype="float64", scale_floor=1e-9, jitter=1e-9, mean_function="zero")
    layer.inducing_points.assign(X)
    K, _, _ = kernels_of(layer, X)
    C, gain = np.linalg.cholesky(K), K @ np.linalg.inv(K + NOISE**2 * np.eye(M))
    whiten = np.linalg.inv(C)
    R = np.linalg.cholesky(whiten @ (K - gain @ K) @ whiten.T)
    layer.mean.assign(whiten @ gain @ Z)
    layer.raw_factor.assign((np.tril(R, -1) + np.diag(np.log(np.diag(R))))[None])
    return X, Z, layer


def test_inducing_points_at_the_data_give_exact_regression(regression):
    _, Z, layer = regression
    K, k, variance = kernels_of(layer, FEATURES)
    weights = k @ np.linalg.inv(K + NOISE**2 * np.eye(M))
    outputs = layer(FEATURES.astype("float64"))
    np.testing.assert_allclose(outputs["loc"], weights @ Z, rtol=1e-6)
    exact = np.sqrt(variance - np.sum(weights * k, axis=1, keepdims=True))
    np.testing.assert_allclose(outputs["scale"], exact, rtol=1e-6)


def test_loss_at_the_exact_posterior_is_stationary_negative_evidence(regression):
    X, Z, layer = regression
    K, _, _ = kernels_of(layer, X)
    evidence = sum(multivariate_normal(np.zeros(M), K + NOISE**2 * np.eye(M)).logpdf(z) for z in Z.T)
    with tf.GradientTape() as tape:
        observation = {"loc": Z, "scale": np.zeros((M, 1))}
        loss = ExpectedNLL(dtype="float64")(observation, layer(X)) + tf.add_n(layer.losses)
    assert float(loss) == pytest.approx(-evidence / M, rel=1e-6)
    for gradient in tape.gradient(loss, [layer.mean.value, layer.raw_factor.value]):
        np.testing.assert_allclose(gradient, 0.0, atol=1e-5)


@pytest.mark.parametrize(
    ("covariance", "kernel"), [*[("isotropic", kernel) for kernel in KERNELS], ("diagonal", "matern52")]
)
def test_gradients_equal_finite_differences(covariance, kernel):
    layer = random_layer(covariance=covariance, kernel=kernel, ard=True, dtype="float64")
    rng = np.random.default_rng(3)
    features = tf.Variable(FEATURES.astype("float64"))
    weigh = {name: rng.normal(size=value.shape) for name, value in layer(features).items()}

    def objective():
        outputs = layer(features)
        return tf.add_n([*layer.losses, *[tf.reduce_sum(weigh[name] * outputs[name]) for name in weigh]])

    variables = [features, *[weight.value for weight in layer.trainable_weights]]
    with tf.GradientTape() as tape:
        value = objective()
    for variable, gradient in zip(variables, tape.gradient(value, variables), strict=True):
        start, step = variable.numpy(), 1e-5 * rng.normal(size=variable.shape)
        ends = []
        for sign in (1, -1):
            variable.assign(start + sign * step)
            ends.append(float(objective()))
        variable.assign(start)
        assert np.sum(gradient * step) == pytest.approx((ends[0] - ends[1]) / 2, rel=1e-4, abs=1e-11)


def test_coinciding_points_far_from_origin_are_finite_in_float32():
    layer = ds.heads.VariationalGaussianProcess(3, 300, num_samples=50, normalize_features=False)
    layer.build((None, D))
    layer.inducing_points.assign(np.full((300, D), 1000.0))
    layer.mean.assign(np.random.default_rng(0).normal(size=(300, 2)))
    with tf.GradientTape() as tape:
        outputs = layer(1000.0 + FEATURES)
        loss = tf.reduce_sum(outputs["loc"]) + tf.reduce_sum(outputs["scale"])
    for value in [*outputs.values(), *tape.gradient(loss, [weight.value for weight in layer.trainable_weights])]:
        assert np.isfinite(value).all()
    # All of the points together say what one of them would.
    prior_less = layer(np.full((1, D), 1000.0, "float32"))
    assert float(prior_less["scale"][0, 0]) == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize("normalize_features", [False, True])
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "bfloat16"])
def test_half_precision_computes_in_float32(policy, normalize_features):
    layer = random_layer(dtype=policy, normalize_features=normalize_features)
    exact = random_layer(normalize_features=normalize_features)
    outputs = layer(FEATURES)
    assert {value.dtype for value in outputs.values()} == {tf.float32}
    assert {weight.dtype for weight in layer.weights} == {"float32"}
    for name, value in outputs.items():
        np.testing.assert_array_equal(value, exact(FEATURES)[name])
    assert float(layer.kl_divergence()) == float(exact.kl_divergence())


# Features that grow and move in training.


def normalized(features, mean, variance, layer):
    gamma, beta = (np.asarray(weight) for weight in (layer.normalization.gamma, layer.normalization.beta))
    return (gamma * (features - mean) / np.sqrt(variance + 1e-3) + beta).astype("float32")


def test_normalization_uses_batch_in_training_and_moving_averages_otherwise():
    features = 3.0 * FEATURES + 2.0
    layer = random_layer(normalize_features=True).adapt(features)
    same = random_layer()
    same.set_weights([weight.numpy() for weight in layer.weights if "normalization" not in weight.path])
    mean, variance = features.mean(axis=0), features.var(axis=0)
    np.testing.assert_allclose(layer.normalization.moving_mean, mean, rtol=1e-5)
    np.testing.assert_allclose(layer.normalization.moving_variance, variance, rtol=1e-5)
    rows = {tuple(row.round(4)) for row in normalized(features, mean, variance, layer)}
    assert rows <= {tuple(point.round(4)) for point in np.asarray(layer.inducing_points)}
    batch = 1.0 - features[:3]
    for training, batch_mean, batch_variance in [
        (False, mean, variance),
        (True, batch.mean(axis=0), batch.var(axis=0)),
    ]:
        outputs, expected = layer(batch, training=training), same(normalized(batch, batch_mean, batch_variance, layer))
        for name, value in outputs.items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layer.normalization.moving_mean, 0.9 * mean + 0.1 * batch.mean(axis=0), rtol=1e-4)


def test_normalization_keeps_growing_features_near_inducing_points():
    left_behind, normalizing = (random_layer(normalize_features=flag).adapt(FEATURES) for flag in (False, True))
    before = normalizing(FEATURES, training=True)
    grown = 100.0 * FEATURES + 1000.0
    prior = np.exp(0.5 * left_behind.log_variance)
    np.testing.assert_allclose(left_behind(grown, training=True)["scale"], np.full((5, 1), prior), rtol=1e-5)
    for name, value in normalizing(grown, training=True).items():
        np.testing.assert_allclose(value, before[name], rtol=2e-2, atol=2e-2)


def test_features_of_small_variance_far_from_zero_are_normalized():
    features = np.random.default_rng(1).normal(size=(64, D))
    layer = random_layer(normalize_features=True)
    expected = layer(features.astype("float32"), training=True)
    # float32 keeps four digits of the differences; variances by mean squares less squared means would keep none.
    for name, value in layer((3000.0 * 0.1 + 0.1 * features).astype("float32"), training=True).items():
        np.testing.assert_allclose(value, expected[name], rtol=0.1, atol=0.1)


def test_frozen_layer_normalizes_by_moving_averages():
    layer = random_layer(normalize_features=True).adapt(FEATURES)
    layer.trainable = False
    before, expected = layer.normalization.moving_mean.numpy(), layer(3.0 * FEATURES)
    for name, value in layer(3.0 * FEATURES, training=True).items():
        np.testing.assert_array_equal(value, expected[name])
    np.testing.assert_array_equal(layer.normalization.moving_mean, before)


# The divergence is counted once, whatever model the layer is in.


@pytest.mark.slow
def test_plain_model_adds_divergence_once():
    layer = random_layer()
    inputs = keras.Input((D,))
    model = keras.Model(inputs, ds.readout.ArgmaxReadout()(layer(inputs)))
    model.compile(optimizer=keras.optimizers.SGD(0.0), loss="sparse_categorical_crossentropy")
    y = np.array([0, 1, 2, 3, 0])
    data_term = -np.log(np.asarray(model(FEATURES))[np.arange(5), y]).mean()
    expected = pytest.approx(data_term + float(layer.kl_divergence()) / 50, rel=1e-5)
    assert model.evaluate(FEATURES, y, verbose=0) == expected
    assert model.fit(FEATURES, y, epochs=2, verbose=0).history["loss"] == [expected, expected]
    assert float(sum(layer.losses)) * 50 == pytest.approx(float(layer.kl_divergence()))  # after training, eagerly


@pytest.mark.slow
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_classifier_of_latents_adds_divergence_once(covariance):
    layer = random_layer(covariance=covariance)
    model = ds.SimplexClassifier(keras.layers.Flatten(), "vertices", 4, head=layer)
    model.compile(keras.optimizers.SGD(0.0), ds.losses.LatentNLL(), run_eagerly=True)
    observation = ds.LatentGaussian(np.ones((5, 3), "float32"), np.full((5, 1), 0.5, "float32"))
    data_term = float(ds.losses.LatentNLL()(observation.as_dict(), layer(FEATURES)))
    expected = pytest.approx(data_term + float(layer.kl_divergence()) / 50, rel=1e-5)
    assert model.evaluate(FEATURES, observation, verbose=0) == expected
    assert model.fit(FEATURES, observation, verbose=0).history["loss"] == [expected]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["head", "backbone"])
def test_classifier_adds_divergence_once(place):
    layer = random_layer()
    if place == "head":
        model = ds.SimplexClassifier(keras.Sequential([keras.layers.Flatten()]), "ilr", 4, head=layer)
    else:  # its means are features for another head
        inputs = keras.Input((D,))
        model = ds.SimplexClassifier(keras.Model(inputs, layer(inputs)["loc"]), "ilr", 4, head="gaussian")
    model.compile(optimizer=keras.optimizers.SGD(0.0), run_eagerly=place == "backbone")
    y = np.array([0, 1, 2, 3, 0])
    observation = model.target.fit_transform(FEATURES, y).as_dict()
    observation = {name: value.astype("float32") for name, value in observation.items()}
    data_term = float(ds.losses.LatentNLL()(observation, model.latent(FEATURES)))
    expected = pytest.approx(data_term + float(layer.kl_divergence()) / 50, rel=1e-5)
    assert model.evaluate(FEATURES, y, verbose=0) == expected
    assert model.fit(FEATURES, y, verbose=0).history["loss"] == [expected]
    assert model.train_on_batch(FEATURES, y) == expected


def test_layer_called_twice_adds_divergence_once_and_frozen_never():
    layer = random_layer()
    one, other = keras.Input((D,)), keras.Input((D,))
    model = keras.Model([one, other], [layer(one), layer(other)])
    model([FEATURES, FEATURES])
    assert float(sum(model.losses)) * 50 == pytest.approx(float(layer.kl_divergence()))
    layer.trainable = False
    assert model.losses == []


# Where it starts.


def test_adapt_chooses_features_of_samples_and_their_median_distance():
    samples = np.random.default_rng(4).normal(size=(40, 3, 2)).astype("float32")
    keras.utils.set_random_seed(4)
    backbone = ds.backbones.mlp([D])
    features = np.asarray(backbone(samples))
    layer = ds.heads.VariationalGaussianProcess(4, M, num_samples=40, ard=True, normalize_features=False)
    assert layer.adapt(samples, backbone=backbone, seed=5) is layer
    points = np.asarray(layer.inducing_points)
    assert all(np.abs(features - point).sum(axis=1).min() < 1e-5 for point in points)
    assert len(np.unique(points, axis=0)) == M
    distances = pdist(features)
    typical = np.median(distances[distances > 0])  # rows whose units are all off are one
    np.testing.assert_allclose(layer.log_lengthscale, np.full(D, np.log(typical)), rtol=1e-4)
    options = {"num_samples": 40, "normalize_features": False}
    again = ds.heads.VariationalGaussianProcess(4, M, **options).adapt(samples, backbone=backbone, seed=5)
    np.testing.assert_array_equal(again.inducing_points, points)
    other = ds.heads.VariationalGaussianProcess(4, M, **options).adapt(samples, backbone=backbone, seed=6)
    assert not np.array_equal(other.inducing_points, points)


@pytest.mark.parametrize("labeled", [False, True])
def test_adapt_reads_a_data_set_once(labeled):
    reads = []
    features = np.arange(30.0).reshape(10, 3).astype("float32")

    def rows():
        reads.append(1)
        yield from features

    samples = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec((3,), "float32"))
    if labeled:
        samples = samples.map(lambda row: (row, 0))
    layer = ds.heads.VariationalGaussianProcess(4, M, num_samples=10, normalize_features=False).adapt(samples.batch(4))
    assert len(reads) == 1
    assert {tuple(point) for point in np.asarray(layer.inducing_points)} <= {tuple(row) for row in features}


def test_adapt_to_few_samples_takes_all():
    samples = np.eye(4, D) + 3.0 * np.eye(1, D, 6)
    points = np.asarray(random_layer().adapt(samples[[0, 0, 1, 2, 3]]).inducing_points)
    distinct = {tuple(point) for point in points}
    assert {tuple(row) for row in samples} < distinct
    assert len(distinct) == M
    assert (points[:, -1] == 3.0).all()  # in which the samples do not vary
    one = np.asarray(random_layer().adapt(samples[:1]).inducing_points)
    assert (one == samples[:1]).all()


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros((9, 2, D)), "Pass the backbone that the layer follows"),
        (np.full((9, D), np.nan), "samples must be finite"),
        (np.zeros((9, D + 1)), r"samples must.*found 8"),
    ],
)
def test_adapt_to_invalid_samples_raises(samples, message):
    with pytest.raises(ValueError, match=message):
        random_layer().adapt(samples)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 1}, r"num_classes must.*found 1"),
        ({"inducing": 0}, r"inducing must.*found 0"),
        ({"num_samples": 0.5}, r"num_samples must.*found 0.5"),
        ({"effective_samples": 0}, r"effective_samples must.*found 0"),
        ({"latent_dim": 0}, r"latent_dim must.*found 0"),
        ({"covariance": "full"}, r"covariance must.*found 'full'"),
        ({"mean_function": "constant"}, r"mean_function must.*found 'constant'"),
        ({"kernel": "matern5"}, r"kernel must.*found 'matern5'"),
        ({"variance": 0.0}, r"variance must.*found 0.0"),
        ({"jitter": 0.0}, r"jitter must.*found 0.0"),
        ({"scale_floor": -1.0}, r"scale_floor must.*found -1.0"),
    ],
)
def test_invalid_argument_raises(arguments, message):
    with pytest.raises(ValueError, match=message):
        ds.heads.VariationalGaussianProcess(**{"num_classes": 4, "inducing": M, "num_samples": 9, **arguments})


def test_effective_samples_bound_sample_count():
    layer = ds.heads.VariationalGaussianProcess(4, M, effective_samples=4).adapt(FEATURES)
    assert float(layer.sample_count) == 4
    layer.mean.assign(np.ones((M, 3)))
    for count, expected in ((1000, 4), (3, 3)):
        layer.set_num_samples(count)
        assert float(sum(layer.losses)) == pytest.approx(float(layer.kl_divergence()) / expected, rel=1e-6)
    given = ds.heads.VariationalGaussianProcess(4, M, num_samples=1000, effective_samples=20)
    assert float(ds.heads.VariationalGaussianProcess.from_config(given.get_config()).adapt(FEATURES).sample_count) == 20
    unbound = ds.heads.VariationalGaussianProcess(4, M, num_samples=1000, effective_samples=None).adapt(FEATURES)
    assert float(unbound.sample_count) == 1000


# On real digits.


def classifier_of_digits(four, **options):
    """Read out by argmax, whose graph is small."""
    (x, y), _ = four
    keras.utils.set_random_seed(0)
    backbone, head = ds.backbones.mlp([64]), {"name": "variational", "inducing": 50, **options}
    model = ds.SimplexClassifier(backbone, "ilr", 4, head=head, readout="argmax")
    model.compile(optimizer=keras.optimizers.Adam(0.02))
    model.fit(x, y, epochs=20, batch_size=100, verbose=0)
    return model


@pytest.fixture(scope="module")
def fitted(four):
    return classifier_of_digits(four)


@pytest.mark.slow
def test_fit_adapts_once_and_counts_samples(fitted, four, tmp_path):
    (x, y), _ = four
    assert fitted.head.adapted
    assert float(fitted.head.sample_count) == len(x)
    fitted.save(tmp_path / "model.keras")
    loaded = ds.load(tmp_path / "model.keras")
    assert loaded.head.adapted
    loaded.head.adapt = lambda *arguments, **options: pytest.fail("adapted again")
    loaded.run_eagerly = True
    loaded.fit(x[:64], y[:64], verbose=0)
    assert float(loaded.head.sample_count) == 64
    fresh = ds.SimplexClassifier(ds.backbones.mlp([4]), "ilr", 4, head="variational", readout="argmax")
    fresh.build((None, 8, 8))
    fresh.save(tmp_path / "fresh.keras")
    assert not ds.load(tmp_path / "fresh.keras").head.adapted


def test_head_in_functional_model_trains_with_effective_samples():
    inputs = keras.Input(FEATURES.shape[1:])
    model = keras.Model(inputs, ds.heads.VariationalGaussianProcess(4, M)(inputs))
    model.compile("sgd", {"loc": "mse", "scale": None}, run_eagerly=True)
    with pytest.warns(UserWarning, match="divided by effective_samples=600, .*Call adapt"):
        model.fit(FEATURES, np.zeros((len(FEATURES), 3)), verbose=0)
    head = model.layers[-1]
    assert float(head.sample_count) == 600
    head.adapt(FEATURES)
    model.fit(FEATURES, np.zeros((len(FEATURES), 3)), verbose=0)
    assert float(head.sample_count) == len(FEATURES)


def test_training_without_any_number_of_samples_raises():
    layer = ds.heads.VariationalGaussianProcess(4, M, effective_samples=None)
    layer(FEATURES)
    with pytest.raises(ValueError, match="num_samples or effective_samples must be given in training"):
        layer(FEATURES, training=True)


@pytest.mark.slow
def test_classifier_learns_digits(fitted, four):
    _, (x_test, y_test) = four
    p = fitted.predict_proba(x_test)
    assert np.mean(p.argmax(axis=1) == y_test) > 0.96
    assert ds.evaluation.negative_log_likelihood(y_test, p) < 0.2
    assert fitted.predict_latent(x_test).covariance == "isotropic"


@pytest.mark.slow
@pytest.mark.parametrize(("normalize_features", "times"), [(False, 1.5), (True, 1.2)])
def test_noise_has_larger_scale_than_digits(normalize_features, times, fitted, four):
    _, (x_test, _) = four
    model = fitted if normalize_features else classifier_of_digits(four, normalize_features=False)
    noise = np.random.default_rng(0).uniform(size=x_test.shape).astype("float32")
    scales = [np.asarray(model.latent(x)["scale"]) for x in (x_test, noise)]
    assert np.median(scales[1]) > times * np.median(scales[0])


@pytest.mark.slow
def test_latents_in_the_hundreds_are_learned_with_matching_variance(four):
    (x, y), (x_test, y_test) = four
    keras.utils.set_random_seed(0)
    target = ds.targets.ILR(noise_scale=1.0)
    latents = target.fit_transform(x, y)
    far = ds.LatentGaussian(100 * latents.loc, 100 * latents.scale)
    head = ds.heads.VariationalGaussianProcess(4, 50, variance=np.mean(far.loc**2))
    model = ds.SimplexClassifier(ds.backbones.mlp([64]), target, 4, head=head)
    model.compile(optimizer=keras.optimizers.Adam(0.01))
    model.fit(x, far, epochs=12, verbose=0)
    predicted = model.predict_latent(x_test).loc @ target.scores(4).T
    assert np.mean(predicted.argmax(axis=1) == y_test) > 0.95


@pytest.mark.slow
def test_classifier_trains_with_xla_on_batches_of_any_size(four):
    (x, y), _ = four
    head = ds.heads.VariationalGaussianProcess(4, 8, num_samples=90, covariance="diagonal", kernel="matern52")
    model = ds.SimplexClassifier(ds.backbones.mlp([16]), "ilr", 4, head=head)
    model.compile(optimizer=keras.optimizers.SGD(0.01), loss=ds.losses.LatentNLL(), jit_compile=True)
    history = model.fit(x[:90], y[:90], batch_size=64, epochs=3, verbose=0).history["loss"]  # batches of 64 and 26
    assert history[-1] < history[0]


@pytest.mark.slow
def test_latent_dim_equal_to_num_classes(four):
    (x, y), (x_test, _) = four
    head = ds.heads.VariationalGaussianProcess(4, 8, num_samples=200, latent_dim=4)
    model = ds.SimplexClassifier(ds.backbones.mlp([16]), "dirichlet", 4, head=head)
    model.compile(run_eagerly=True)
    model.fit(x[:200], y[:200], verbose=0)
    np.testing.assert_allclose(model.predict_proba(x_test[:9]).sum(axis=1), 1.0, rtol=1e-5)


@pytest.mark.slow
def test_mixed_precision_trains_through_readout(four):
    (x, y), _ = four
    policy = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        inputs = keras.Input(x.shape[1:])
        backbone = ds.backbones.mlp([32])
        head = ds.heads.VariationalGaussianProcess(4, 20, num_samples=300).adapt(x[:300], backbone=backbone)
        model = keras.Model(inputs, ds.readout.ArgmaxReadout()(head(backbone(inputs))))
        model.compile(keras.optimizers.Adam(0.02), loss="sparse_categorical_crossentropy", run_eagerly=True)
        history = model.fit(x[:300], y[:300], epochs=5, batch_size=100, verbose=0).history["loss"]
    finally:
        keras.mixed_precision.set_global_policy(policy)
    assert history[-1] < 0.8 * history[0]
