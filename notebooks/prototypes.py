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
# # Prototypes that explain decisions
#
# A prototype is a typical sample, whose position is trained. A few prototypes represent all training samples, and the
# nearest ones explain a decision.

# %%
# %matplotlib inline
import os

import keras
from sklearn.datasets import load_wine

import deepsimplex as ds

EPOCHS = int(os.environ.get("EPOCHS", 20))
keras.utils.set_random_seed(0)

# %% [markdown]
# ## A table: one prototype per class, and a learned metric

# %%
wine = load_wine()
X, y = wine.data, wine.target_names[wine.target]
classifier = ds.GMLVQ().fit(X[::2], y[::2])
print(ds.evaluation.report(wine.target[1::2], classifier.predict_proba(X[1::2])))

# %%
ds.plots.relevance(classifier, wine.feature_names)

# %% [markdown]
# ## Images: prototypes at the end of a network
#
# Without a hidden layer the prototypes are images. Training can change one until it no longer looks like a digit.

# %%
data = ds.datasets.load("digits")
(x, y), (x_test, y_test) = data
head = {"name": "prototypes", "prototypes_per_class": 2}
model = ds.SimplexClassifier(keras.layers.Flatten(), "vertices", class_names=data.class_names, head=head)
model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(x, y, epochs=EPOCHS, batch_size=64, verbose=0)
print(ds.evaluation.report(y_test, model.predict_proba(x_test)))

# %%
ds.plots.prototype_images(
    model.head.prototypes, model.head.prototype_labels, shape=(8, 8), class_names=data.class_names
)

# %% [markdown]
# ## Why this class?

# %%
explained = model.explain(x_test[:3], k=3)
for labels, weights, truth in zip(explained.labels, explained.weights, y_test[:3], strict=True):
    print(truth, dict(zip(labels.tolist(), weights.round(2).tolist(), strict=True)))
