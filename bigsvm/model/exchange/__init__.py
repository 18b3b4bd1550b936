"""Models in the formats of other programs, out and in: LIBLINEAR, LIBSVM, ONNX, .npz."""
