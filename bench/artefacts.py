"""Where what comes of making a page of docs/results goes.

A page keeps its tables, and of pictures at most one that it shows. All else, rows, plans, timelines and
further pictures, are artefacts: they are written to build/results, and nobody commits them.
test/artefacts.cmake holds that.
"""

import io
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "results"
ARTEFACTS = ROOT / "build" / "results"


def artefact(page, name):
    """The file of that name that comes of making the page: in build/results for a page of docs/results,
    beside the page for one that is made elsewhere."""
    folder = pathlib.Path(page).resolve().parent
    if folder == PAGES:
        folder = ARTEFACTS
        folder.mkdir(parents=True, exist_ok=True)
    return folder / name


def relative(file):
    """Its path as a page says it: within the repository, where it is there."""
    file = pathlib.Path(file).resolve()
    return file.relative_to(ROOT) if file.is_relative_to(ROOT) else file


def picture(figure, file, comments=(), dpi=None):
    """Draws a figure of matplotlib as a PNG of at most 32 colours, the same bytes every time. The
    comments are in it as text, as a page has them."""
    from PIL import Image, PngImagePlugin

    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", **({} if dpi is None else {"dpi": dpi}))
    image = Image.open(drawn).convert("RGB").quantize(32, dither=Image.Dither.NONE)
    said = PngImagePlugin.PngInfo()
    if comments:
        said.add_text("Comment", "\n".join(comments))
    image.save(file, format="PNG", optimize=True, pnginfo=said)
