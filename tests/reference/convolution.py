"""The matrix of a 2D convolution, entry by entry."""

import numpy as np


def convolution_matrix(kernel, height, width, stride=1, padding="valid"):
    """Matrix [H' W' F, H W C] of a convolution with kernel [k, l, C, F] as a map of flattened images [H, W, C]."""
    rows, columns, channels, filters = kernel.shape
    if padding == "same":
        new_height, new_width = -(-height // stride), -(-width // stride)
        top = max((new_height - 1) * stride + rows - height, 0) // 2
        left = max((new_width - 1) * stride + columns - width, 0) // 2
    else:
        new_height, new_width = (height - rows) // stride + 1, (width - columns) // stride + 1
        top = left = 0
    matrix = np.zeros((new_height, new_width, filters, height, width, channels))
    for i, j in np.ndindex(new_height, new_width):
        for a, b in np.ndindex(rows, columns):
            row, column = i * stride + a - top, j * stride + b - left
            if 0 <= row < height and 0 <= column < width:
                matrix[i, j, :, row, column, :] = kernel[a, b].T
    return matrix.reshape(new_height * new_width * filters, height * width * channels)
