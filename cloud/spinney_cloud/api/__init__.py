"""The HTTP API: publications in, subscriptions, explanations, discovery, notifications as events, metrics, health."""
