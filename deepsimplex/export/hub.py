"""Classifiers on the Hugging Face Hub."""

import importlib
import tempfile
from pathlib import Path
from typing import Any

import keras

from deepsimplex.evaluation import Report
from deepsimplex.export.model_card import write_card


def save_to_hub(
    model: Any,
    repo_id: str,
    report: Report | None = None,
    *,
    private: bool | None = None,
    token: str | bool | None = None,
    commit_message: str = "Upload a classifier",
    **card: Any,
) -> str:
    """Upload a classifier with its card to a repository of the Hugging Face Hub, which is made if it does not exist.

    Parameters
    ----------
    model : SimplexClassifier, estimator or AfterTraining
        Uploaded as ``model.save`` writes it: "model.keras", or "model.npz". ``AfterTraining`` saves what was fitted
        after training, without the classifier inside.
    repo_id : str
        "user/name". Files of these names and README.md are replaced there, others are kept.
    report : Report, optional
        Scores for the card.
    private : bool, optional
        Of a repository that is made. Default None: the default of the organization.
    token : str or bool, optional
        Default None: that of ``hf auth login``.
    commit_message : str
    **card
        As of ``model.card``: name, by default that of the repository, description, data, license.

    Returns
    -------
    str
        Address of the commit.

    Raises
    ------
    ImportError
        Without huggingface_hub: ``pip install '.[hub]'`` in a checkout.
    ValueError
        For arguments that ``model.card`` or ``model.save`` refuse; nothing is uploaded then.

    Examples
    --------
    >>> save_to_hub(model, "user/digits", license="mit")  # doctest: +SKIP
    'https://huggingface.co/user/digits/commit/...'

    It is loaded by ``deepsimplex.load(huggingface_hub.hf_hub_download("user/digits", "model.keras"))``.
    """
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise ImportError(
            f"save_to_hub needs huggingface_hub; in a checkout: pip install '.[hub]' ({error})"
        ) from error
    with tempfile.TemporaryDirectory() as folder:
        write_card(model.card(report, **{"name": repo_id.rpartition("/")[2], **card}), folder)
        model.save(Path(folder) / ("model.keras" if isinstance(model, keras.Model) else "model.npz"))
        api = hub.HfApi(token=token)
        api.create_repo(repo_id, private=private, exist_ok=True)
        commit = api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message=commit_message)
    return str(commit.commit_url)
