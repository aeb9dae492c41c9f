"""What exact learning gains over contrastive divergence: the measurements of chapter 13."""
