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
# # Comparing classifiers in standardized partition spaces
#
# A forest's votes, a margin and a posterior express confidence in different units. [SPS] scales the memberships of each
# region, the samples that a classifier puts into one class, so that their mean is the share of correct test samples:
# then the ability to separate (AS) and the accuracy of memberships (Ac) can be compared between classifiers.

# %%
# %matplotlib inline
from sklearn.datasets import load_wine
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_predict
from sklearn.svm import SVC

import deepsimplex as ds

X, y = load_wine(return_X_y=True)
X = X[:, [0, 6, 9]]  # alcohol, flavanoids, color: with all features every classifier is right
classifiers = {
    "Gaussian process": ds.SimplexGaussianProcess("ilr"),
    "forest": RandomForestClassifier(random_state=0),
    "QDA": QuadraticDiscriminantAnalysis(),
}
p = {name: cross_val_predict(one, X, y, cv=5, method="predict_proba") for name, one in classifiers.items()}
margins = cross_val_predict(SVC(), (X - X.mean(0)) / X.std(0), y, cv=5, method="decision_function")
p["margins of an SVM"] = ds.evaluation.standardized_memberships(margins, "softmax")

# %%
print(ds.evaluation.compare_partitions(y, p))

# %% [markdown]
# ## Region by region

# %%
partition = ds.evaluation.standardized_partition(y, p["forest"])
print(partition)

# %% [markdown]
# ## Before and after on the simplex

# %%
names = ["first", "second", "third"]
ds.plots.simplex(p["forest"], y, class_names=names)

# %%
ds.plots.simplex(partition.membership, y, class_names=names)
