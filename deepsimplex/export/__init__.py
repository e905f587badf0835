"""Export of trained classifiers: SavedModels that TensorFlow alone can serve, ONNX and LiteRT files."""

from deepsimplex.export.export_model import export_model
from deepsimplex.export.saved_model import ServedModel, load_served
from deepsimplex.export.sklearn_onnx import export_pipeline

__all__ = ["ServedModel", "export_model", "export_pipeline", "load_served"]
