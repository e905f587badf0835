"""Colours that colour-blind readers can tell apart (Okabe and Ito), and are of different lightness in grey."""

BLUE = "#0072B2"
ORANGE = "#E69F00"
VERMILLION = "#D55E00"
GREY = "#999999"
BLACK = "#000000"
