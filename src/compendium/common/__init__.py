"""What several chapters share that is no physics: images, texts, tasks, drawings."""
