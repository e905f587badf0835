"""Deep classifiers beside one another: identical backbones, images, order of samples, epochs and optimizer."""
