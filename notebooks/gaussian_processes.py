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
# # Gaussian processes on tables, with intervals
#
# Labels become points of a Euclidean space by the isometric log-ratio (ILR) [ILR-GP], a Gaussian process is fitted to
# them in closed form, and the softmax readout turns its Gaussian into class probabilities with credible intervals.

# %%
# %matplotlib inline
import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

import deepsimplex as ds

data = load_wine()
X, X_test, y, y_test = train_test_split(data.data, data.target, test_size=0.5, stratify=data.target, random_state=0)
classifier = ds.SimplexGaussianProcess("ilr", smoothing="validate").fit(X, y)
p = classifier.predict_proba(X_test)
print("smoothing", classifier.smoothing_)
print(ds.evaluation.report(y_test, p, intervals=0.95))

# %% [markdown]
# ## Credible intervals
#
# A probability of 0.6 may come from many samples of both classes nearby, or from none. The interval distinguishes these
# cases.

# %%
lower, upper = classifier.class_intervals(X_test, level=0.95)
predicted = p.argmax(axis=1)
rows = np.arange(len(p))
width = (upper - lower)[rows, predicted]
for row in np.argsort(-width)[:5]:
    k = predicted[row]
    print(f"{data.target_names[k]}: {p[row, k]:.2f} in [{lower[row, k]:.2f}, {upper[row, k]:.2f}], true {y_test[row]}")

# %%
ds.plots.simplex(p, y_test, class_names=list(data.target_names))

# %% [markdown]
# ## Compared with least squares and Dirichlet targets

# %%
peers = {
    "ILR": classifier,
    "Dirichlet": ds.SimplexGaussianProcess("dirichlet").fit(X, y),
    "least squares, Platt": ds.estimators.least_squares_gaussian_process(platt=True).fit(X, y),
}
print(ds.evaluation.compare_reports(y_test, {name: peer.predict_proba(X_test) for name, peer in peers.items()}))
