"""Models in the formats of other programs: export and import of LIBLINEAR, LIBSVM and .npz, export of ONNX."""
