"""Comparison of deep classifiers with identical backbones, images, order of samples, epochs, and trials of settings."""
