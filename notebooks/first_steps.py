# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # First steps: from labels to probabilities that can be trusted
#
# A classifier here is three choices, each independent of the others: a **target** turns labels into points of a latent
# space, a **regressor** learns a Gaussian over that space, and a **readout** integrates the Gaussian into class
# probabilities. This notebook walks through them on scikit-learn's handwritten digits. Open it with
# `jupytext --to notebook notebooks/first_steps.py`.

# %%
# %matplotlib inline
import os

import keras
import numpy as np

import deepsimplex as ds

EPOCHS = int(os.environ.get("EPOCHS", 15))
keras.utils.set_random_seed(0)
data = ds.datasets.load("digits")
(x, y), (x_test, y_test) = data
print(x.shape, x_test.shape, data.class_names)

# %% [markdown]
# ## 1. The target: where labels lie
#
# CASIMAC's rule: an image is pushed away from the vertex of every other class by its distance to that class. Images
# deep inside their class land far out in its sector of the simplex; images near another class land near its border.

# %%
target = ds.targets.CASIMAC("euclidean")
latent = target.fit_transform(x, y)
assert (ds.geometry.nearest_vertex(latent.loc) == y).all()  # the class is never lost
margin = np.sort(latent.loc @ target.scores_.T, axis=1)
hard = np.argsort(margin[:, -1] - margin[:, -2])[:8]
print("the training images nearest to another class:", [data.class_names[y[i]] for i in hard])

# %% [markdown]
# ## 2. The regressor: a Keras network that ends in a Gaussian

# %%
model = ds.SimplexClassifier(ds.backbones.cnn([16, 32], units=64), target, num_classes=10, class_names=data.class_names)
model.compile(
    optimizer=keras.optimizers.Adam(3e-3),
    loss=ds.losses.LatentNLL(beta=0.5),
    metrics=["accuracy", ds.metrics.ExpectedCalibrationError()],
)
history = model.fit(x, y, epochs=EPOCHS, batch_size=64, verbose=0, validation_split=0.1)
print({name: round(values[-1], 3) for name, values in history.history.items()})

# %% [markdown]
# ## 3. The readout: exact, the same on every call
#
# The head has one variance per image, so the probability that each class scores highest is a one-dimensional integral.

# %%
gaussian = model.predict_latent(x_test)
p = ds.readout.argmax(gaussian)
np.testing.assert_allclose(p, model.predict_proba(x_test), atol=1e-5)
print(ds.evaluation.report(y_test, p))

# %%
ds.plots.reliability(y_test, p)

# %% [markdown]
# ## Where it is unsure

# %%
unsure = np.argsort(p.max(axis=1))[:8]
ds.plots.predictions(x_test[unsure], p[unsure], y_test[unsure], class_names=data.class_names)
