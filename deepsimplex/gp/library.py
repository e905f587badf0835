"""GPflow, imported here alone: it greets with warnings that are its own affair and not our users'."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import gpflow

__all__ = ["gpflow"]
