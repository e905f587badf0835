"""Comparison of classifiers on the features of a frozen backbone, or on features that a user has."""
