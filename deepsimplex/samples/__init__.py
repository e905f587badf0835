"""Samples and labels of every kind as one type, checked once: in blocks, minibatches, epochs and random draws."""

from deepsimplex.samples.class_labels import Labels
from deepsimplex.samples.reservoir import Draw, Reservoir
from deepsimplex.samples.samples import ArraySamples, Samples, Stream, is_stream

__all__ = ["ArraySamples", "Draw", "Labels", "Reservoir", "Samples", "Stream", "is_stream"]
