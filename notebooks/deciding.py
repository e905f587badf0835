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
# # Deciding: abstain, return a set, flag the unfamiliar
#
# Three ways to decide by calibrated probabilities.

# %%
# %matplotlib inline
import os

import keras
import numpy as np

import deepsimplex as ds

EPOCHS = int(os.environ.get("EPOCHS", 15))
keras.utils.set_random_seed(0)
(x, y), (x_test, y_test) = ds.datasets.load("digits")
(x, x_held), (y, y_held) = np.split(x, [1100]), np.split(y, [1100])
model = ds.SimplexClassifier(ds.backbones.mlp([64]), "vertices", num_classes=10)
model.compile(keras.optimizers.Adam(3e-3))
model.fit(x, y, epochs=EPOCHS, batch_size=32, verbose=0)

# %% [markdown]
# ## The unfamiliar
#
# The density of the features shows which samples are like those of training; probabilities of others become less
# confident. It is fitted first, since it changes the probabilities.

# %%
model.fit_density(x, y)
print("flagged digits:", (model.familiarity(x_test) < 0.01).mean())
print("flagged negatives:", (model.familiarity(1 - x_test) < 0.01).mean())

# %%
p, familiarity = model.predict_proba(x_test), model.familiarity(x_test)
ds.plots.uncertain_images(x_test, p, y_test, k=8, familiarity=familiarity, by="familiarity")

# %% [markdown]
# ## Abstain
#
# Which share of the samples can be decided at which error rate? The threshold is chosen on held-out samples.

# %%
curve = ds.evaluation.risk_coverage_curve(y_held, model.predict_proba(x_held))
threshold = curve.confidence[int(0.9 * len(y_held)) - 1]
decided = p.max(axis=1) >= threshold
print(f"decided {decided.mean():.2f}, of which right {(p.argmax(axis=1) == y_test)[decided].mean():.3f}")

# %%
ds.plots.risk_coverage({"network": ds.evaluation.risk_coverage_curve(y_test, p)})

# %% [markdown]
# ## Return a set
#
# A set of classes that holds the true one in 95 of 100 cases.

# %%
sets = model.conformalize(x_held, y_held, coverage=0.95).predict_set(x_test)
print("coverage", ds.evaluation.coverage(y_test, sets), "classes in a set", ds.evaluation.set_size(y_test, sets))

# %%
ds.plots.prediction_sets(y_test, sets, coverage=0.95)
