//! What a user does on the timeline, and what comes of it.
