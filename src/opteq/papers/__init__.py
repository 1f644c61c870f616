"""Every experiment of the papers as a command, theirs beside ours."""
