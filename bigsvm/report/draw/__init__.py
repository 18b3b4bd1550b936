"""Drawing of charts: as SVG, as pictures, or in the characters of a terminal."""
