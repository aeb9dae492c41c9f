"""TODO what the study of this chapter computes and which tables it stores."""
