"""Selection of rows by conditions on columns and by splits, and labels made from columns."""
