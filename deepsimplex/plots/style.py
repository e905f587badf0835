"""Colors that color-blind readers can tell apart (Okabe and Ito), and are of different lightness in gray."""

# Three dark ones join them: CIEDE2000 of any two stays above 10 where protanopia, deuteranopia and tritanopia are
# simulated (Machado et al. 2009). Black is left to borders and edges.

BLUE = "#0072B2"
ORANGE = "#E69F00"
VERMILLION = "#D55E00"
GREEN = "#009E73"
PURPLE = "#CC79A7"
SKY = "#56B4E9"
YELLOW = "#F0E442"
WINE = "#661100"
INDIGO = "#332288"
CHARCOAL = "#222222"
GREY = "#999999"
BLACK = "#000000"

CLASS_COLORS = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILLION, YELLOW, CHARCOAL, INDIGO, WINE)
"""No more than these are told apart; further classes take them again with another marker."""
CLASS_MARKERS = ("o", "s", "^", "D", "v")


def class_style(n: int) -> list[tuple[str, str]]:
    """Color and marker of each of n classes, all different up to fifty.

    Examples
    --------
    >>> class_style(2)
    [('#0072B2', 'o'), ('#E69F00', 'o')]
    >>> class_style(11)[-1]
    ('#0072B2', 's')
    """
    colors, markers = len(CLASS_COLORS), len(CLASS_MARKERS)
    return [(CLASS_COLORS[k % colors], CLASS_MARKERS[k // colors % markers]) for k in range(n)]


def literal(text: str) -> str:
    """Text that Matplotlib draws as it is, where dollars would begin a formula.

    Examples
    --------
    >>> literal("$5 or $6")
    '\\\\$5 or \\\\$6'
    """
    return text.replace("$", r"\$")
