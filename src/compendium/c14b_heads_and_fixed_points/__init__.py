"""Where the heads of a real transformer would come to rest, and whether it is at a memory."""
