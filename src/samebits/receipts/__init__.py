"""Receipts: everything that made an answer, so that anyone can make it again and compare every bit."""
