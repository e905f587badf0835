"""Export of trained classifiers: SavedModels that TensorFlow alone can serve."""

from deepsimplex.export.saved_model import ServedModel, export_saved_model, load_served

__all__ = ["ServedModel", "export_saved_model", "load_served"]
