"""Execute the notebooks and write them as pages of the site.

    python -m training.notebooks [NAME ...] [--output build/notebooks]

Writes NAME.md with what every cell printed and drew, and its pictures. The environment variables EPOCHS and IMAGES cut
the training short. One kernel executes them all, so that TensorFlow is imported once; each begins without names. The
one on Fashion-MNIST runs on digits where those images are not at hand, and its page says so; nothing is downloaded.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import jupytext
import typer
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbconvert import MarkdownExporter
from nbformat.v4 import new_code_cell

import deepsimplex as ds

FOLDER = Path("notebooks")
ON_DIGITS = "!!! note\n    Fashion-MNIST was not on the machine that made this page: its results are of the digits.\n\n"


@contextmanager
def running_kernel() -> Iterator[KernelManager]:
    """Start a kernel, and shut it down at the end."""
    kernel = KernelManager(kernel_name="python3")
    kernel.start_kernel()
    try:
        yield kernel
    finally:
        kernel.shutdown_kernel(now=True)


def page(path: Path, kernel: KernelManager) -> tuple[str, dict[str, bytes]]:
    """Execute a notebook, and return its page in Markdown and the pictures that the page links to."""
    notebook = jupytext.read(path)
    notebook.cells.insert(0, new_code_cell("%reset -f"))
    client = NotebookClient(notebook, timeout=None, km=kernel)
    try:
        client.execute()
    finally:
        if client.kc is not None:
            client.kc.stop_channels()
    del notebook.cells[0]
    for cell in notebook.cells:  # messages of TensorFlow and progress bars are left out
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    markdown, resources = MarkdownExporter().from_notebook_node(notebook, resources={"output_files_dir": path.stem})
    return markdown, dict(resources["outputs"])


def have_fashion_mnist() -> bool:
    """Return whether a copy of Fashion-MNIST is on this machine; from here on downloads fail."""
    os.environ |= dict.fromkeys(("https_proxy", "HTTPS_PROXY"), "http://127.0.0.1:9")
    try:
        ds.datasets.load("fashion_mnist", dtype="uint8")
    except OSError:
        return False
    return True


def main(
    names: Annotated[list[str] | None, typer.Argument(help="default all")] = None,
    output: Annotated[Path, typer.Option(help="folder of the pages")] = Path("build/notebooks"),
) -> None:
    """Execute the notebooks and write their pages."""
    paths = {path.stem: path for path in sorted(FOLDER.glob("*.py"))}
    if unknown := set(names or ()) - paths.keys():
        raise typer.BadParameter(f"NAMES must be among {', '.join(paths)}; found {', '.join(sorted(unknown))}")
    if on_digits := not have_fashion_mnist():
        os.environ["DATA"] = "digits"
    with running_kernel() as kernel:
        for name in names or paths:
            begun = time.monotonic()
            markdown, pictures = page(paths[name], kernel)
            if on_digits and name == "fashion_mnist":
                markdown = ON_DIGITS + markdown
            (output / name).mkdir(parents=True, exist_ok=True)
            for place, picture in pictures.items():
                (output / place).write_bytes(picture)
            (output / f"{name}.md").write_text(markdown, encoding="utf-8")
            print(f"{output / name}.md, {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    typer.run(main)
