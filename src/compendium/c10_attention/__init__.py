"""The families of cheap attention against the formula, by cost and error."""
