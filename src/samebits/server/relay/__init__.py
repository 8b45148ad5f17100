"""Requests that engines in other processes answer: what goes over the wire, and answers that outlive an engine."""
