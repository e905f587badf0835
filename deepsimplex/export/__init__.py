"""Export of trained classifiers: SavedModels that TensorFlow alone can serve, ONNX and LiteRT files."""

from deepsimplex.export.portable_formats import EXPORT_FORMATS, export_portable
from deepsimplex.export.saved_model import ServedModel, export_saved_model, load_served

__all__ = ["EXPORT_FORMATS", "ServedModel", "export_portable", "export_saved_model", "load_served"]
