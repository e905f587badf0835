"""The README's picture: images of no known class, as a softmax network answers them and as deepsimplex does.

    python -m training.unknown_pieces [--output docs/pictures/unknown_pieces.png] [--results FILE]

Both learn the handwritten digits of scikit-learn. They are shown pieces of its two photographs, as gray images of the
same size; drawn is the piece of which the softmax network is surest, for the six digits of which it is surest.
"""

from pathlib import Path
from typing import Annotated, Any

import keras
import numpy as np
import typer
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_sample_images

import deepsimplex as ds
from training.results import Output, ResultTable

PIECES, SIDE, SHOWN = 200, 96, 6


def pieces(seed: int = 0) -> NDArray[np.float32]:
    """200 pieces of each photograph, [400, 8, 8], from black to white."""
    rng, drawn = np.random.default_rng(seed), []
    for photograph in load_sample_images().images:
        gray = Image.fromarray(photograph).convert("L")
        for _ in range(PIECES):
            left, top = (int(rng.integers(size - SIDE)) for size in gray.size)
            piece = gray.crop((left, top, left + SIDE, top + SIDE)).resize((8, 8), Image.Resampling.BOX)
            drawn.append(np.asarray(piece, np.float32))
    images = np.stack(drawn)
    low, high = (extreme(images, axis=(1, 2), keepdims=True) for extreme in (np.min, np.max))
    return (images - low) / (high - low)


def hidden() -> list[Any]:
    """The layers below the last one."""
    return [keras.Input((8, 8)), keras.layers.Flatten(), keras.layers.Dense(200, "relu")]


def main(
    output: Annotated[Path, typer.Option(help="the picture")] = Path("docs/pictures/unknown_pieces.png"),
    results: Output = None,
) -> None:
    """Train, draw and print how many of the images are called unknown."""
    (x, y), (x_test, _) = ds.datasets.load("digits")
    unknown = pieces()
    keras.utils.set_random_seed(0)
    softmax = keras.Sequential([*hidden(), keras.layers.Dense(10, "softmax")])
    softmax.compile("adam", "sparse_categorical_crossentropy")
    softmax.fit(x, y, epochs=60, verbose=0)
    model = ds.SimplexClassifier(keras.Sequential(hidden(), trainable=False), num_classes=10)
    model.compile()
    model.fit(x, y, verbose=0)
    p, answers = softmax.predict(unknown, verbose=0), model.predict_or_unknown(unknown)
    surest = sorted(np.unique(np.argmax(p, axis=0)), key=lambda i: -p[i].max())[:SHOWN]
    figure = Figure(figsize=(1.3 * SHOWN, 1.7), layout="constrained")
    for axes, i in zip(figure.subplots(1, SHOWN), surest, strict=True):
        axes.imshow(unknown[i], cmap="gray")
        axes.set_axis_off()
        answer = "unknown" if answers[i] < 0 else str(answers[i])
        axes.set_title(f"softmax: {p[i].argmax()} ({p[i].max():.2f})\ndeepsimplex: {answer}", fontsize=8)
    figure.savefig(output, dpi=120)
    table = ResultTable("training.unknown_pieces")
    table.add(
        pieces=len(unknown),
        **{
            "softmax above 0.9": float(np.mean(p.max(axis=1) > 0.9)),
            "called unknown": float(np.mean(answers < 0)),
            "digits, called unknown": float(np.mean(model.predict_or_unknown(x_test) < 0)),
        },
    )
    table.write(results)


if __name__ == "__main__":
    typer.run(main)
