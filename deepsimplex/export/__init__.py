"""Export of trained classifiers: SavedModels that TensorFlow alone can serve, ONNX and LiteRT files, model cards."""

from deepsimplex.export.export_model import export_model
from deepsimplex.export.hub import save_to_hub
from deepsimplex.export.model_card import model_card
from deepsimplex.export.portable_formats import export_pipeline
from deepsimplex.export.saved_model import ServedModel, load_served

__all__ = ["ServedModel", "export_model", "export_pipeline", "load_served", "model_card", "save_to_hub"]
