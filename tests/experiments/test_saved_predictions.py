"""Saved predictions: round trip, few images kept, damaged files rejected."""

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from deepsimplex import LatentGaussian
from deepsimplex.experiments import Predictions, load_predictions, save_predictions
from deepsimplex.readout import READOUTS


@pytest.fixture(scope="module")
def bayes(digits):
    """Labels, class probabilities and images of the digits' test set."""
    (x, y), (x_test, y_test) = digits
    model = GaussianNB(var_smoothing=0.05).fit(x.reshape(len(x), -1), y)
    return y_test, model.predict_proba(x_test.reshape(len(x_test), -1)), x_test


def latents(samples: int, dimension: int = 9) -> LatentGaussian:
    rng = np.random.default_rng(0)
    return LatentGaussian(
        rng.normal(size=(samples, dimension)).astype("float32"), np.full((samples, 1), 0.5, "float32")
    )


def test_saved_predictions_round_trip(bayes, tmp_path):
    y, p, images = bayes
    latent, scores, names = latents(len(y), 3), np.eye(10)[:, :3], [f"digit {k} <é>" for k in range(10)]
    p = p.astype("float32")
    save_predictions(
        tmp_path / "bayes.npz",
        y,
        p,
        latent=latent,
        scores=scores,
        readout="softmax",
        images=images,
        class_names=names,
        keep=5,
    )
    predictions = load_predictions(tmp_path / "bayes.npz")
    np.testing.assert_array_equal(predictions.y, y)
    np.testing.assert_array_equal(predictions.p, p)
    assert predictions.p.dtype == np.float32
    assert predictions.class_names == tuple(names)
    assert READOUTS.name_of(predictions.readout) == "softmax"
    np.testing.assert_array_equal(predictions.scores, scores)
    np.testing.assert_array_equal(predictions.latent.loc, latent.loc)
    np.testing.assert_array_equal(predictions.latent.scale, latent.scale)
    assert predictions.images.dtype == np.uint8
    np.testing.assert_allclose(predictions.images, 255 * images[predictions.image_rows].reshape(-1, 8, 8), atol=0.5)


@pytest.mark.parametrize("names", [["a", "b"], np.array(["b", "a"]), [7, 3], ["1", "0"]], ids=str)
def test_labels_are_names_or_numbers(names, tmp_path):
    for y in (np.array(names)[[0, 1, 1]], [names[0], names[1], names[1]]):
        save_predictions(tmp_path / "named.npz", y, [[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]], class_names=names)
        predictions = load_predictions(tmp_path / "named.npz")
        np.testing.assert_array_equal(predictions.y, [0, 1, 1])
        assert predictions.class_names == tuple(map(str, names))


@pytest.mark.parametrize("y", [[0, 1, 1], np.array([0, 1, 1], dtype=object), [[1, 0], [0, 1], [0, 1]]])
def test_labels_beside_names_may_be_numbers(y):
    predictions = Predictions.of(y, [[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]], class_names=["a", "b"])
    np.testing.assert_array_equal(predictions.y, [0, 1, 1])


def test_names_without_class_names_raise():
    with pytest.raises(TypeError, match=r"y must hold class numbers.*as class_names"):
        Predictions.of(["a", "b"], [[0.9, 0.1], [0.4, 0.6]])


def test_least_certain_images_and_surest_mistakes_are_kept(bayes):
    y, p, images = bayes
    predictions = Predictions.of(y, p, images=images, keep=4)
    entropy = [-sum(q * np.log(q) for q in row if q > 0) for row in p]
    least_certain = sorted(range(len(y)), key=lambda i: -entropy[i])[:4]
    most_wrong = sorted(range(len(y)), key=lambda i: p[i, y[i]])[:4]
    assert predictions.image_rows.tolist() == sorted({*least_certain, *most_wrong})


def test_color_images_in_bytes_round_trip(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (3, 4, 5, 3), np.uint8)
    save_predictions(tmp_path / "a.npz", [0, 1, 0], [[0.5, 0.5]] * 3, images=images)
    predictions = load_predictions(tmp_path / "a.npz")
    np.testing.assert_array_equal(predictions.images, images)
    assert (predictions.class_names, predictions.names_classes, predictions.readout) == (("0", "1"), False, None)


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_changed_byte_raises(bayes, tmp_path, place):
    y, p, images = bayes
    file = tmp_path / "a.npz"
    save_predictions(file, y, p, images=images)
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= 0x40
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.npz is damaged"):
        load_predictions(file)


@pytest.mark.parametrize("kept", [0, 10, 1000])
def test_truncated_file_raises(bayes, tmp_path, kept):
    y, p, _ = bayes
    file = tmp_path / "a.npz"
    save_predictions(file, y, p)
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"a\.npz is damaged, or no file of save_predictions"):
        load_predictions(file)


def test_failed_write_keeps_the_earlier_file(tmp_path):
    file = tmp_path / "a.npz"
    save_predictions(file, [0], [[0.5, 0.5]])
    before = file.read_bytes()
    with pytest.raises(ValueError, match="sum to 1"):
        save_predictions(file, [0], [[0.5, 0.6]])
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_other_file_raises(tmp_path):
    np.savez(tmp_path / "a.npz", y=[0], p=[[0.5, 0.5]])
    with pytest.raises(ValueError, match=r"a\.npz is damaged, or no file of save_predictions"):
        load_predictions(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"class_names": ["a", "a"]}, ValueError, "2 different names"),
        ({"class_names": "ab"}, ValueError, "2 different names"),
        ({"readout": "softmax"}, ValueError, "without latent"),
        ({"latent": latents(3, 1)}, ValueError, "a Gaussian for each of the 1 rows"),
        ({"latent": latents(1, 1), "readout": "sofmax"}, ValueError, "did you mean 'softmax'"),
        ({"latent": latents(1, 3), "readout": "softmax"}, ValueError, "without, L must be 1"),
        ({"latent": latents(1, 2), "scores": np.eye(3)}, ValueError, r"scores must.*found 3"),
        (
            {"latent": latents(1, 2), "scores": np.ma.masked_equal(np.eye(2), 0)},
            ValueError,
            "scores must not be masked; found 2 masked values",
        ),
        ({"latent": [[0.0]]}, TypeError, r"latent must.*found list"),
        ({"images": np.zeros((2, 3, 3))}, ValueError, r"images must.*found shape \(2, 3, 3\)"),
        ({"images": np.full((1, 3, 3), 200.0)}, ValueError, r"uint8 or lie in \[0, 1\]"),
        ({"keep": 0}, ValueError, r"keep must.*found 0"),
    ],
)
def test_invalid_argument_raises(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        save_predictions(tmp_path / "a.npz", [0], [[0.4, 0.6]], **options)
    assert not list(tmp_path.iterdir())
