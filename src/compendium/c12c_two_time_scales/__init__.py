"""A continuous memory whose hidden neurons lag behind."""
