"""svmlight text, plain or compressed, read and written."""
