"""What any HTTP server of ours needs: connections and their bounds, who may call, JSON in and out, errors, events."""
