"""Guarantees for any scheduler: minimum and maximum shares of tenants, and due dates based on fair sharing."""
