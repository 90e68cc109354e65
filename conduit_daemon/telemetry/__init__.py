"""What happens in the daemon, told: typed events, structured logs, and secrets kept out of both."""
