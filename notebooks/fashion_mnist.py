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
# # Fashion-MNIST: informed targets, TensorBoard and export
#
# The informed targets of [CASIMAC] sec. 3.4 are the mean of three: distances between pixels, and structural similarity
# in windows of 5 and of 13 pixels. Here are the first two. A shirt that looks like a coat lies near the coats before
# any network has seen it. `EPOCHS` and `IMAGES` are environment variables, for a short run, and so is `DATA`, for other
# images, such as `digits`.

# %%
# %matplotlib inline
import os
from pathlib import Path
from tempfile import mkdtemp

import keras

import deepsimplex as ds

EPOCHS, IMAGES = int(os.environ.get("EPOCHS", 8)), int(os.environ.get("IMAGES", 10_000))
folder = Path(mkdtemp())
keras.utils.set_random_seed(0)
data = ds.datasets.load(os.environ.get("DATA", "fashion_mnist"))
(x, y), (x_test, y_test) = data
x, y, x_test, y_test = x[:IMAGES], y[:IMAGES], x_test[:2000], y_test[:2000]

# %% [markdown]
# ## The targets
#
# The search of nearest neighbors is exact; `cache_dir` keeps the neighbors for the next run.

# %%
casimac, ssim = ds.targets.CASIMAC, ds.distances.SSIM(5)
target = ds.targets.Mean([casimac(one, cache_dir=folder / "cache", show_progress=True) for one in ("euclidean", ssim)])
latent = target.fit_transform(x, y)
ds.plots.latent_space(latent[:1000], y[:1000], scores=target.scores(10), class_names=data.class_names)

# %% [markdown]
# ## The network, with TensorBoard
#
# `tensorboard --logdir` with the folder's `events` shows calibration and latents, epoch by epoch.

# %%
model = ds.SimplexClassifier(ds.backbones.cnn([16, 32], units=64, dropout=0.2), target, class_names=data.class_names)
model.compile(keras.optimizers.Adam(2e-3), metrics=["accuracy"])
board = ds.monitoring.CalibrationBoard(folder / "events", (x_test, y_test), samples=500, pictures=EPOCHS > 2)
history = model.fit(x, y, epochs=EPOCHS, batch_size=128, verbose=2, callbacks=[board])
p = model.predict_proba(x_test)
print(ds.evaluation.report(y_test, p))

# %%
ds.plots.uncertain_images(x_test, p, y_test, k=8, class_names=data.class_names)

# %% [markdown]
# ## Export
#
# TensorFlow alone serves the folder; uint8 pixels are divided by 255 inside.

# %%
model.export(folder / "served", input_dtype="uint8")
served = ds.export.load_served(folder / "served").predict((255 * x_test[:5]).astype("uint8"))
print({name: values.shape for name, values in served.items()})
