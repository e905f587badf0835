"""Saliency of the least certain and the least familiar test images: in a file, and on the report page."""

import keras
import numpy as np
import pytest

import deepsimplex as ds
from deepsimplex.experiments import Predictions, report_figures
from deepsimplex.experiments.explained_images import explain_images, load_explained, save_explained
from deepsimplex.experiments.finished_runs import Run


@pytest.fixture(scope="module")
def explained():
    (x, y), (x_test, y_test) = ds.datasets.load("digits")
    names = [f"digit {k}" for k in range(10)]
    head = {"name": "prototypes", "prototypes_per_class": 2}
    model = ds.SimplexClassifier(keras.layers.Flatten(), "vertices", head=head, class_names=names)
    model.compile(loss="sparse_categorical_crossentropy", run_eagerly=True)
    model.fit(x[:100], y[:100], verbose=0)
    model.fit_density(x[:100], y[:100])
    x, y = x_test[:40], y_test[:40]
    predicted = model.predict_all(x)
    return model, x, y, predicted["probabilities"], explain_images(model, x, y, predicted)


def test_least_certain_and_least_familiar_images_are_explained(explained):
    model, x, y, p, content = explained
    rows = np.argsort(-ds.evaluation.uncertainty(p), kind="stable")[:6]
    np.testing.assert_array_equal(content["uncertain"].images, x[rows])
    maps = model.saliency(x[rows], baseline=x.mean(axis=0))
    np.testing.assert_allclose(content["uncertain"].maps, maps, rtol=1e-4, atol=1e-6)
    first, near = content["uncertain"].titles[0].split("\n")
    assert first == f"{p[rows[0]].max():.2f} digit {p[rows[0]].argmax()}, true digit {y[rows[0]]}"
    assert near == f"near {', '.join(model.explain(x[rows[:1]]).labels[0])}"
    familiarity = model.familiarity(x)
    np.testing.assert_array_equal(content["unfamiliar"].images[0], x[familiarity.argmin()])
    assert content["unfamiliar"].titles[0].startswith(f"familiarity {familiarity.min():.3f}\n")


def test_explained_images_of_a_file_are_on_the_page(explained, tmp_path):
    *_, y, p, content = explained
    save_explained(tmp_path / "explained.npz", content)
    loaded = load_explained(tmp_path / "explained.npz")
    np.testing.assert_array_equal(loaded["unfamiliar"].maps, content["unfamiliar"].maps)
    run = Run("one", Predictions.of(y, p), explained=loaded)
    sections = [each for each in report_figures._sections_by_run([run], {}, 0.9) if each.title.startswith("Why ")]
    for section, kind in zip(sections, ("uncertain", "unfamiliar"), strict=True):
        figure, alt = section.draw(run, 0.9)
        assert len(figure.axes) == 12
        assert content[kind].titles[0] in alt
        assert section.draw(Run("other", Predictions.of(y, p)), 0.9) is None
    (tmp_path / "explained.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"explained.npz is damaged"):
        load_explained(tmp_path / "explained.npz")
